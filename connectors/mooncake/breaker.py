"""Whether the master answers. One call that says it does not is enough: each further one would cost more than four seconds.

Threads: any; the probe runs on a thread of its own, because it is as slow as the calls that it spares.
"""

import threading


class Breaker:
    """Closed: calls are made. Open: they are not, and `probe` (returns whether the master answers) is called every `every_s`. One that raises
    says that it does not: whatever the library does, the next one is made."""

    def __init__(self, probe, every_s):
        self._probe, self._every_s = probe, every_s
        self._changed = threading.Condition()
        self._why = None
        self._ended = False
        self.trips = self.probes = 0
        self.last_error = ""  # of the last probe that raised
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def why(self):
        """Why it is open; None when it is closed."""
        return self._why

    def trip(self, why):
        with self._changed:
            if self._why is None:
                self._why = why
                self.trips += 1
                self._changed.notify_all()

    def end(self, patience_s):
        """No probe is begun any more. Returns whether none is under way either."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()
        self._thread.join(patience_s)
        return not self._thread.is_alive()

    def _run(self):
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._ended or self._why is not None)
                self._changed.wait_for(lambda: self._ended, self._every_s)
                if self._ended:
                    return
                self.probes += 1
            if self._healthy():
                with self._changed:
                    self._why = None

    def _healthy(self):
        try:
            return bool(self._probe())
        except Exception as error:
            self.last_error = f"{type(error).__name__}: {error}"[:200]
            return False

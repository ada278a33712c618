// Clang's thread-safety analysis: which member is guarded by which lock is written beside the member and
// checked by the compiler (preset `clang`); other compilers see nothing. The standard library's mutex carries
// no annotations, so a thin one that does stands here.
//
// Threads: Mutex and MutexLock are what they say.
#pragma once

#include <mutex>

#if defined(__clang__)
#define TIERCEL_THREAD_ATTRIBUTE(x) __attribute__((x))
#else
#define TIERCEL_THREAD_ATTRIBUTE(x)
#endif

#define TIERCEL_CAPABILITY(name) TIERCEL_THREAD_ATTRIBUTE(capability(name))
#define TIERCEL_SCOPED_CAPABILITY TIERCEL_THREAD_ATTRIBUTE(scoped_lockable)
#define TIERCEL_GUARDED_BY(mutex) TIERCEL_THREAD_ATTRIBUTE(guarded_by(mutex))
#define TIERCEL_REQUIRES(...) TIERCEL_THREAD_ATTRIBUTE(requires_capability(__VA_ARGS__))
#define TIERCEL_ACQUIRE(...) TIERCEL_THREAD_ATTRIBUTE(acquire_capability(__VA_ARGS__))
#define TIERCEL_RELEASE(...) TIERCEL_THREAD_ATTRIBUTE(release_capability(__VA_ARGS__))
#define TIERCEL_EXCLUDES(...) TIERCEL_THREAD_ATTRIBUTE(locks_excluded(__VA_ARGS__))

namespace tiercel {

// A std::mutex that the analysis knows; waits use std::condition_variable_any on it.
class TIERCEL_CAPABILITY("mutex") Mutex final {
 public:
  Mutex() = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;
  void lock() TIERCEL_ACQUIRE() { mutex_.lock(); }
  void unlock() TIERCEL_RELEASE() { mutex_.unlock(); }

 private:
  std::mutex mutex_;
};

class TIERCEL_SCOPED_CAPABILITY MutexLock final {
 public:
  explicit MutexLock(Mutex& mutex) TIERCEL_ACQUIRE(mutex) : mutex_(mutex) { mutex_.lock(); }
  ~MutexLock() TIERCEL_RELEASE() { mutex_.unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex& mutex_;
};

}  // namespace tiercel

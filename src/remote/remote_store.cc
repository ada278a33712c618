#include "remote/remote_store.h"

namespace tiercel {

std::string_view remote_outcome_name(RemoteOutcome outcome) {
  switch (outcome) {
    case RemoteOutcome::kOk:
      return "ok";
    case RemoteOutcome::kAbsent:
      return "absent";
    case RemoteOutcome::kWrongSize:
      return "wrong_size";
    case RemoteOutcome::kNoRoom:
      return "no_room";
    case RemoteOutcome::kTooLarge:
      return "too_large";
    case RemoteOutcome::kInvalid:
      return "invalid";
    case RemoteOutcome::kFailed:
      return "failed";
    case RemoteOutcome::kDown:
      return "down";
    case RemoteOutcome::kLate:
      return "late";
    case RemoteOutcome::kCancelled:
      return "cancelled";
  }
  return "unknown";
}

}  // namespace tiercel

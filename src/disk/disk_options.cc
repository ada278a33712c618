#include "disk/disk_options.h"

#include "base/check.h"
#include "disk/disk_log.h"

namespace tiercel {

std::string_view disk_admission_name(DiskAdmission admission) {
  switch (admission) {
    case DiskAdmission::kAuto:
      return "auto";
    case DiskAdmission::kAll:
      return "all";
    case DiskAdmission::kSecondTouch:
      return "second_touch";
  }
  TIERCEL_CHECK(false);
}

std::string_view disk_verdict_name(DiskVerdict verdict) {
  switch (verdict) {
    case DiskVerdict::kAccepted:
      return "accepted";
    case DiskVerdict::kAlreadyThere:
      return "already_there";
    case DiskVerdict::kSecondTouch:
      return "second_touch";
    case DiskVerdict::kWriteBudget:
      return "write_budget";
    case DiskVerdict::kQuota:
      return "quota";
    case DiskVerdict::kTooLarge:
      return "too_large";
    case DiskVerdict::kNoRoom:
      return "no_room";
    case DiskVerdict::kRateLimited:
      return "rate_limited";
    case DiskVerdict::kTierDown:
      return "tier_down";
  }
  TIERCEL_CHECK(false);
}

}  // namespace tiercel

// A device that this processor cannot look into and whose streams run only as far as they are let: for tests
// of whoever waits for copies. Batches run backwards, since copies of one batch have no order.
//
// Threads: streams and events may be used while another thread lets work go.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "device/device.h"
#include "os/thread_annotations.h"

namespace tiercel {

class HeldDevice final : public Device, public HostRegistrar {
 public:
  explicit HeldDevice(std::uint64_t bytes) : memory_(bytes) {}

  Status read(std::uint64_t address, MutableByteView into) override { return memory_.read(address, into); }
  Status write(std::uint64_t address, ByteView from) override { return memory_.write(address, from); }
  std::uint64_t size_bytes() const override { return memory_.size_bytes(); }
  Result<std::unique_ptr<DeviceStream>> open_stream() override {
    return std::make_unique<Stream>(shared_, memory_);
  }
  HostRegistrar* host_registrar() override { return this; }
  Status register_range(MutableByteView range) override {
    if (registrations_left == 0) return {Code::kResourceExhausted, "the device pins no more"};
    --registrations_left;
    registered.push_back(range);
    return {};
  }
  void unregister_range(MutableByteView range) override {
    std::erase_if(registered, [&](MutableByteView other) { return other.data() == range.data(); });
  }

  MutableByteView bytes() { return memory_.bytes(); }
  // Runs the next `batches` submitted batches, of all streams in the order of their submission; fewer when
  // there are fewer. Returns how many ran.
  std::uint64_t let_go(std::uint64_t batches) { return shared_->let_go(batches); }
  void let_all_go() { shared_->let_all_go(); }  // from now on, too
  std::uint64_t held() const { return shared_->held(); }
  // The batch after so many more fails, and every later one.
  void fail_after(std::uint64_t batches) { shared_->fail_after(batches); }

  std::vector<MutableByteView> registered;
  std::uint64_t registrations_left = UINT64_MAX;

 private:
  // A submitted batch, or what an event waits for: all entries up to its number.
  struct Entry {
    std::uint64_t stream = 0;
    std::uint64_t number = 0;
    std::function<Status()> run;
  };
  struct Row {
    std::uint64_t submitted = 0, over = 0;
    Status status;
  };
  class Shared final {
   public:
    std::uint64_t add_row() TIERCEL_EXCLUDES(mutex_) {
      const MutexLock lock(mutex_);
      rows_.emplace_back();
      return rows_.size() - 1;
    }
    void submit(std::uint64_t stream, std::function<Status()> run) TIERCEL_EXCLUDES(mutex_) {
      const MutexLock lock(mutex_);
      queue_.push_back({stream, ++rows_[stream].submitted, std::move(run)});
      while (free_ && !queue_.empty()) run_first();
    }
    std::uint64_t submitted(std::uint64_t stream) const TIERCEL_EXCLUDES(mutex_) {
      const MutexLock lock(mutex_);
      return rows_[stream].submitted;
    }
    Result<bool> is_over(std::uint64_t stream, std::uint64_t number) const TIERCEL_EXCLUDES(mutex_) {
      const MutexLock lock(mutex_);
      if (rows_[stream].over < number) return false;
      if (!rows_[stream].status.ok()) return tl::unexpected(rows_[stream].status);
      return true;
    }
    Status wait(std::uint64_t stream, std::uint64_t number) TIERCEL_EXCLUDES(mutex_) {
      const MutexLock lock(mutex_);
      while (rows_[stream].over < number) changed_.wait(mutex_);
      return rows_[stream].status;
    }
    std::uint64_t let_go(std::uint64_t batches) TIERCEL_EXCLUDES(mutex_) {
      const MutexLock lock(mutex_);
      std::uint64_t ran = 0;
      for (; ran < batches && !queue_.empty(); ++ran) run_first();
      return ran;
    }
    void let_all_go() TIERCEL_EXCLUDES(mutex_) {
      const MutexLock lock(mutex_);
      free_ = true;
      while (!queue_.empty()) run_first();
    }
    std::uint64_t held() const TIERCEL_EXCLUDES(mutex_) {
      const MutexLock lock(mutex_);
      return queue_.size();
    }
    void fail_after(std::uint64_t batches) TIERCEL_EXCLUDES(mutex_) {
      const MutexLock lock(mutex_);
      good_ = batches;
    }

   private:
    void run_first() TIERCEL_REQUIRES(mutex_) {
      const Entry entry = std::move(queue_.front());
      queue_.pop_front();
      Row& row = rows_[entry.stream];
      if (row.status.ok()) row.status = good_ > 0 ? entry.run() : Status{Code::kIoError, "the device failed"};
      if (good_ > 0 && good_ != UINT64_MAX) --good_;
      row.over = entry.number;
      changed_.notify_all();
    }
    mutable Mutex mutex_;
    std::condition_variable_any changed_;
    std::deque<Entry> queue_ TIERCEL_GUARDED_BY(mutex_);
    std::deque<Row> rows_ TIERCEL_GUARDED_BY(mutex_);
    bool free_ TIERCEL_GUARDED_BY(mutex_) = false;
    std::uint64_t good_ TIERCEL_GUARDED_BY(mutex_) = UINT64_MAX;
  };

  class Event final : public DeviceEvent {
   public:
    Event(std::shared_ptr<Shared> shared, std::uint64_t stream, std::uint64_t number)
        : shared_(std::move(shared)), stream_(stream), number_(number) {}
    Result<bool> done() override { return shared_->is_over(stream_, number_); }
    Status wait() override { return shared_->wait(stream_, number_); }

   private:
    std::shared_ptr<Shared> shared_;  // with the device and its streams
    std::uint64_t stream_, number_;
  };

  class Stream final : public DeviceStream {
   public:
    Stream(std::shared_ptr<Shared> shared, HostDevice& memory)
        : shared_(std::move(shared)), memory_(memory), number_(shared_->add_row()) {}
    Stream(const Stream&) = delete;
    Stream& operator=(const Stream&) = delete;
    ~Stream() override { static_cast<void>(shared_->wait(number_, shared_->submitted(number_))); }
    Status submit(CopyDirection direction, std::span<const DeviceCopy> copies) override {
      shared_->submit(number_, [this, direction, batch = std::vector(copies.rbegin(), copies.rend())] {
        for (const DeviceCopy& copy : batch) {
          Status status = direction == CopyDirection::kToDevice
                              ? memory_.write(copy.address, ByteView(copy.host, copy.length))
                              : memory_.read(copy.address, MutableByteView(copy.host, copy.length));
          if (!status.ok()) return status;
        }
        return Status{};
      });
      return {};
    }
    Result<std::unique_ptr<DeviceEvent>> record() override {
      return std::make_unique<Event>(shared_, number_, shared_->submitted(number_));
    }
    // Batches run in the order of their submission, whatever their stream: that of the event came before.
    Status follow(DeviceEvent&) override { return {}; }
    Status drain() override { return shared_->wait(number_, shared_->submitted(number_)); }

   private:
    std::shared_ptr<Shared> shared_;  // with the device and the events
    HostDevice& memory_;
    std::uint64_t number_;
  };

  HostDevice memory_;
  std::shared_ptr<Shared> shared_ = std::make_shared<Shared>();  // with streams and events
};

}  // namespace tiercel

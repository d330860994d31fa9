#include "trace.h"

#include <cupti.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <thread>

#include "library.h"

namespace cr {
namespace {

constexpr size_t kBufferBytes = size_t{4} << 20;
constexpr size_t kAlignment = 64;  // CUPTI asks for 8

struct Cupti {
  decltype(&cuptiGetVersion) get_version;
  decltype(&cuptiGetResultString) get_result_string;
  decltype(&cuptiActivityRegisterCallbacks) register_callbacks;
  decltype(&cuptiActivityEnable) enable;
  decltype(&cuptiActivityDisable) disable;
  decltype(&cuptiActivityFlushAll) flush_all;
  decltype(&cuptiActivityGetNextRecord) next_record;
  decltype(&cuptiActivityGetNumDroppedRecords) dropped_records;
};

// CUPTI's callbacks carry no user pointer, so what they fill is global. They may run on CUPTI's own thread, and when
// CUDA ends after this library's static objects: none of these is ever destroyed.
Cupti cupti;
std::mutex& mutex = *new std::mutex;
std::vector<Record>& records = *new std::vector<Record>;
std::vector<uint8_t*>& free_buffers = *new std::vector<uint8_t*>;
uint64_t dropped_total = 0;
uint64_t ends_total = 0;
std::string& callback_error = *new std::string;

void cupti_check(CUptiResult result, char const* what) {
  if (result == CUPTI_SUCCESS) return;
  char const* text = nullptr;
  (void)cupti.get_result_string(result, &text);
  throw Failure(Code::kFailed, std::string("CUPTI, ") + what + ": " + (text != nullptr ? text : "unknown error"));
}

void CUPTIAPI on_request(uint8_t** buffer, size_t* size, size_t* max_records) {
  std::lock_guard<std::mutex> lock(mutex);
  if (free_buffers.empty()) {
    *buffer = static_cast<uint8_t*>(std::aligned_alloc(kAlignment, kBufferBytes));
  } else {
    *buffer = free_buffers.back();
    free_buffers.pop_back();
  }
  *size = *buffer != nullptr ? kBufferBytes : 0;
  *max_records = 0;
}

Kind kind_of(char const* kernel_name) {
  char const* own = kernel_name != nullptr ? std::strstr(kernel_name, "cr_") : nullptr;
  if (own == nullptr) return Kind::kLaunch;
  if (std::strncmp(own, "cr_flush", 8) == 0) return Kind::kFlush;
  if (std::strncmp(own, "cr_aside_", 9) == 0) return Kind::kAside;
  if (std::strncmp(own, "cr_end", 6) == 0) return Kind::kEnd;
  return Kind::kLaunch;
}

void CUPTIAPI on_complete(CUcontext context, uint32_t stream, uint8_t* buffer, size_t, size_t valid) {
  std::lock_guard<std::mutex> lock(mutex);
  CUpti_Activity* activity = nullptr;
  CUptiResult result = CUPTI_SUCCESS;
  while (valid > 0 && (result = cupti.next_record(buffer, valid, &activity)) == CUPTI_SUCCESS) {
    if (activity->kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL || activity->kind == CUPTI_ACTIVITY_KIND_KERNEL) {
      auto const* kernel = reinterpret_cast<CUpti_ActivityKernel10 const*>(activity);
      Kind const kind = kind_of(kernel->name);
      ends_total += kind == Kind::kEnd ? 1 : 0;
      records.push_back({kernel->start, kernel->end, kernel->correlationId, kind});
    } else if (activity->kind == CUPTI_ACTIVITY_KIND_MEMSET) {
      auto const* memset = reinterpret_cast<CUpti_ActivityMemset4 const*>(activity);
      records.push_back({memset->start, memset->end, memset->correlationId, Kind::kLaunch});
    }
  }
  if (result != CUPTI_SUCCESS && result != CUPTI_ERROR_MAX_LIMIT_REACHED && result != CUPTI_ERROR_INVALID_KIND) {
    callback_error = "reading an activity record failed with code " + std::to_string(static_cast<int>(result));
  }
  size_t dropped = 0;
  if (cupti.dropped_records(context, stream, &dropped) == CUPTI_SUCCESS) dropped_total += dropped;
  if (buffer != nullptr) free_buffers.push_back(buffer);
}

}  // namespace

void Trace::open(std::vector<std::string> const& directories) {
  void* handle = open_library(directories, {"libcupti.so.13", "libcupti.so"});
  find_symbol(handle, "cuptiGetVersion", cupti.get_version);
  find_symbol(handle, "cuptiGetResultString", cupti.get_result_string);
  find_symbol(handle, "cuptiActivityRegisterCallbacks", cupti.register_callbacks);
  find_symbol(handle, "cuptiActivityEnable", cupti.enable);
  find_symbol(handle, "cuptiActivityDisable", cupti.disable);
  find_symbol(handle, "cuptiActivityFlushAll", cupti.flush_all);
  find_symbol(handle, "cuptiActivityGetNextRecord", cupti.next_record);
  find_symbol(handle, "cuptiActivityGetNumDroppedRecords", cupti.dropped_records);
  cupti_check(cupti.get_version(&version_), "version");
  if (version_ / 10000 != CUPTI_API_VERSION / 10000) {
    throw Failure(Code::kFailed, "CUPTI's interface version is " + std::to_string(version_) + "; this engine reads records of " +
                                     std::to_string(CUPTI_API_VERSION) + " (CUDA 13)");
  }
  cupti_check(cupti.register_callbacks(on_request, on_complete), "register callbacks");
}

void Trace::enable() {
  if (enabled_) return;
  cupti_check(cupti.enable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL), "enable kernel records");
  cupti_check(cupti.enable(CUPTI_ACTIVITY_KIND_MEMSET), "enable memset records");
  enabled_ = true;
}

void Trace::disable() {
  if (!enabled_) return;
  cupti_check(cupti.disable(CUPTI_ACTIVITY_KIND_MEMSET), "disable memset records");
  cupti_check(cupti.disable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL), "disable kernel records");
  enabled_ = false;
}

void Trace::deliver(bool forced) {
  cupti_check(cupti.flush_all(forced ? CUPTI_ACTIVITY_FLAG_FLUSH_FORCED : 0), "flush records");
  std::lock_guard<std::mutex> lock(mutex);
  if (!callback_error.empty()) throw Failure(Code::kFailed, "CUPTI, " + callback_error);
}

void Trace::close() {
  disable();
  deliver(true);
}

void Trace::begin() {
  deliver(false);
  std::lock_guard<std::mutex> lock(mutex);
  records.clear();
  batches_ = ends_total + 1;
}

bool Trace::collect(size_t launches, std::vector<Span>& spans) {
  constexpr int kAttempts = 400;  // about 0.8 s
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    deliver(attempt >= kAttempts / 2);
    {
      std::lock_guard<std::mutex> lock(mutex);
      if (ends_total >= batches_ && cut(records, launches, spans)) return true;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return false;
}

uint64_t Trace::dropped() const {
  std::lock_guard<std::mutex> lock(mutex);
  return dropped_total;
}

bool cut(std::vector<Record> all, size_t launches, std::vector<Span>& spans) {
  // One stream: records follow each other in time. Correlation ids settle ties of coarse timestamps.
  std::sort(all.begin(), all.end(), [](Record const& x, Record const& y) {
    return x.start != y.start ? x.start < y.start : x.correlation < y.correlation;
  });
  size_t last = all.size();  // becomes the position of the last end kernel
  while (last > 0 && all[last - 1].kind != Kind::kEnd) --last;
  if (last == 0) return false;
  --last;
  size_t first = last;
  while (first > 0 && all[first - 1].kind != Kind::kEnd) --first;
  spans.clear();
  bool timed = false;  // between a flush and what ends its launch
  for (size_t i = first; i < last; ++i) {
    if (all[i].kind == Kind::kFlush) {
      spans.push_back(Span{0, 0, 0});
      timed = true;
    } else if (all[i].kind == Kind::kAside) {
      timed = false;
    } else if (timed) {
      Span& span = spans.back();
      if (span.records == 0) span.start = all[i].start;
      span.end = std::max(span.end, all[i].end);
      ++span.records;
    }
  }
  return spans.size() == launches;
}

}  // namespace cr

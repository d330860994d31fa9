#include "activity.h"

#include <cupti.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <mutex>
#include <thread>

#include "kernels.h"
#include "library.h"

namespace cr {
namespace {

constexpr size_t kBufferBytes = size_t{1} << 20;
constexpr size_t kAlignment = 64;  // CUPTI asks for 8
char const kEndMark[] = "cr_end";

struct Cupti {
  decltype(&cuptiGetVersion) get_version;
  decltype(&cuptiGetResultString) get_result_string;
  decltype(&cuptiActivityRegisterCallbacks) register_callbacks;
  decltype(&cuptiActivityEnable) enable;
  decltype(&cuptiActivityFlushAll) flush_all;
  decltype(&cuptiActivityGetNextRecord) next_record;
  decltype(&cuptiActivityGetNumDroppedRecords) dropped_records;
};

// CUPTI's callbacks carry no user pointer, so what they fill is global. They may run on CUPTI's own thread.
Cupti cupti;
std::mutex mutex;
std::vector<Activity> activities;
uint64_t dropped_total = 0;
std::string callback_error;

void cupti_check(CUptiResult result, char const* what) {
  if (result == CUPTI_SUCCESS) return;
  char const* text = nullptr;
  (void)cupti.get_result_string(result, &text);
  throw Failure(Code::kFatal, std::string("CUPTI, ") + what + ": " + (text != nullptr ? text : "unknown error"));
}

void CUPTIAPI on_request(uint8_t** buffer, size_t* size, size_t* max_records) {
  *buffer = static_cast<uint8_t*>(std::aligned_alloc(kAlignment, kBufferBytes));
  *size = *buffer != nullptr ? kBufferBytes : 0;
  *max_records = 0;
}

// Kernel, memcpy and memset records begin alike in all versions of CUPTI, but hold these fields at different places.
template <typename Record>
void add(CUpti_Activity const* activity, char const* what, bool kernel) {
  auto const* record = reinterpret_cast<Record const*>(activity);
  activities.push_back({record->start, record->end, record->correlationId, what != nullptr ? what : "?", kernel});
}

void CUPTIAPI on_complete(CUcontext context, uint32_t stream, uint8_t* buffer, size_t, size_t valid) {
  std::lock_guard<std::mutex> lock(mutex);
  CUpti_Activity* activity = nullptr;
  CUptiResult result = CUPTI_SUCCESS;
  while (valid > 0 && (result = cupti.next_record(buffer, valid, &activity)) == CUPTI_SUCCESS) {
    switch (activity->kind) {
      case CUPTI_ACTIVITY_KIND_KERNEL:
      case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL:
        add<CUpti_ActivityKernel10>(activity, reinterpret_cast<CUpti_ActivityKernel10*>(activity)->name, true);
        break;
      case CUPTI_ACTIVITY_KIND_MEMCPY: add<CUpti_ActivityMemcpy6>(activity, "memcpy", false); break;
      case CUPTI_ACTIVITY_KIND_MEMCPY2: add<CUpti_ActivityMemcpyPtoP4>(activity, "memcpy", false); break;
      case CUPTI_ACTIVITY_KIND_MEMSET: add<CUpti_ActivityMemset4>(activity, "memset", false); break;
      default: break;
    }
  }
  if (result != CUPTI_SUCCESS && result != CUPTI_ERROR_MAX_LIMIT_REACHED) {
    callback_error = "reading an activity record failed with code " + std::to_string(static_cast<int>(result));
  }
  size_t dropped = 0;
  if (cupti.dropped_records(context, stream, &dropped) == CUPTI_SUCCESS) dropped_total += dropped;
  std::free(buffer);
}

bool is_end_mark(Activity const& activity) { return activity.what.find(kEndMark) != std::string::npos; }

}  // namespace

void ActivityLog::open(std::vector<std::string> const& directories) {
  void* handle = open_library(directories, {"libcupti.so.13", "libcupti.so"});
  find_symbol(handle, "cuptiGetVersion", cupti.get_version);
  find_symbol(handle, "cuptiGetResultString", cupti.get_result_string);
  find_symbol(handle, "cuptiActivityRegisterCallbacks", cupti.register_callbacks);
  find_symbol(handle, "cuptiActivityEnable", cupti.enable);
  find_symbol(handle, "cuptiActivityFlushAll", cupti.flush_all);
  find_symbol(handle, "cuptiActivityGetNextRecord", cupti.next_record);
  find_symbol(handle, "cuptiActivityGetNumDroppedRecords", cupti.dropped_records);
  cupti_check(cupti.get_version(&version_), "version");
  if (version_ / 10000 != CUPTI_API_VERSION / 10000) {
    throw Failure(Code::kFatal, "CUPTI's interface version is " + std::to_string(version_) +
                                    "; this checker reads records of " + std::to_string(CUPTI_API_VERSION) + " (CUDA 13)");
  }
  cupti_check(cupti.register_callbacks(on_request, on_complete), "register callbacks");
  for (CUpti_ActivityKind const kind : {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, CUPTI_ACTIVITY_KIND_MEMCPY,
                                        CUPTI_ACTIVITY_KIND_MEMCPY2, CUPTI_ACTIVITY_KIND_MEMSET}) {
    cupti_check(cupti.enable(kind), "enable records");
  }
  recording_ = true;
}

std::vector<Activity> ActivityLog::take(cudaStream_t stream) {
  if (!recording_) throw Failure(Code::kFatal, "no activity records are kept; start the checker's process with --trace");
  check(cudaDeviceSynchronize(), "wait for the device");
  mark_end(stream);
  check(cudaStreamSynchronize(stream), "wait for the end mark");
  constexpr int kAttempts = 500;  // about 1 s
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    if (attempt > 0) std::this_thread::sleep_for(std::chrono::milliseconds(2));
    cupti_check(cupti.flush_all(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED), "flush records");
    std::lock_guard<std::mutex> lock(mutex);
    if (!callback_error.empty()) throw Failure(Code::kFatal, "CUPTI, " + callback_error);
    if (dropped_total > 0) throw Failure(Code::kFatal, "CUPTI dropped " + std::to_string(dropped_total) + " records");
    auto const order = [](Activity const& x, Activity const& y) { return x.correlation < y.correlation; };
    std::stable_sort(activities.begin(), activities.end(), order);
    // What a thread submits behind the end mark belongs to the next window.
    auto const mark = std::find_if(activities.rbegin(), activities.rend(), is_end_mark);
    if (mark == activities.rend()) continue;
    std::vector<Activity> const taken(activities.begin(), mark.base() - 1);
    activities.erase(activities.begin(), mark.base());
    return taken;
  }
  throw Failure(Code::kFatal, "CUPTI did not deliver the end of a window: records were switched off or lost");
}

}  // namespace cr

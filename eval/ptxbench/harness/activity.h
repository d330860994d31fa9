// Everything that a process does on the GPU, from CUPTI's activity records.
#pragma once
#include <string>
#include <vector>

#include "support.h"

namespace cr {

// One kernel, copy or memset, whatever stream, thread, context or graph it came from.
struct Activity {
  uint64_t start, end;   // ns
  uint32_t correlation;  // grows with every call into CUDA
  std::string what;      // name of the kernel; "memcpy" or "memset"
  bool kernel;
};

class ActivityLog {
 public:
  // Finds and opens CUPTI and starts recording. Must come before the CUDA context exists.
  void open(std::vector<std::string> const& directories);
  bool recording() const { return recording_; }
  uint32_t version() const { return version_; }
  // Waits for the device, launches an end mark and returns all records between the previous one and this, ordered by
  // correlation. Throws if records are missing.
  std::vector<Activity> take(cudaStream_t stream);

 private:
  uint32_t version_ = 0;
  bool recording_ = false;
};

}  // namespace cr

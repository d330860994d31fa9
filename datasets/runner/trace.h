// GPU timestamps of kernels and memsets, from CUPTI's activity records.
#pragma once
#include <string>
#include <vector>

#include "support.h"

namespace cr {

// What an activity record belongs to: a launch, or one of the runner's kernels that structure a batch. A flush begins
// the span of a timed launch, an aside ends it.
enum class Kind : uint8_t { kLaunch, kFlush, kAside, kEnd };

// One activity record.
struct Record {
  uint64_t start, end;   // ns
  uint32_t correlation;  // grows with every call into CUDA
  Kind kind;
};

// What one timed launch did on the GPU.
struct Span {
  uint64_t start, end;  // ns; start of the first to end of the last record
  int32_t records;      // 0 if nothing ran
};

class Trace {
 public:
  // Finds and opens CUPTI. Must come before the CUDA context exists.
  void open(std::vector<std::string> const& directories);
  void enable();
  void disable();
  // Ends the records: none is pending afterwards. CUPTI itself stays loaded.
  void close();
  // Starts a batch: forgets all records so far.
  void begin();
  // Waits for the records of a batch: `launches` launches, each preceded by a flush, then the end kernel. The stream
  // must be idle. Returns false if records are missing.
  bool collect(size_t launches, std::vector<Span>& spans);
  uint32_t version() const { return version_; }
  uint64_t dropped() const;

 private:
  void deliver(bool forced);
  uint32_t version_ = 0;
  uint64_t batches_ = 0;
  bool enabled_ = false;
};

// Cuts records, in any order, into one span per flush. Returns false unless exactly `launches` flushes precede the last
// end kernel (and follow the one before it, if there is any).
bool cut(std::vector<Record> records, size_t launches, std::vector<Span>& spans);

}  // namespace cr

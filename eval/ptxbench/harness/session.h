// One GPU process of the checker. As "candidate" it calls code that is not trusted; as "reference" it calls cuBLASLt and
// judges outputs. Both run the same protocol.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "activity.h"
#include "cublas.h"
#include "kernels.h"

namespace cr {

// What a candidate exports: D = A B on device memory, enqueued on `stream`. What it returns is not looked at.
using Run = void (*)(void const* a, void const* b, void* d, int m, int n, int k, cudaStream_t stream);

struct Problem {
  int m, n, k;
  bool a_row, b_row, d_row;  // row-major
  Element element;
};

struct Draw {
  Distribution distribution;
  float scale;
  uint64_t seed;
};

// What one call did.
struct Timing {
  double span_us = 0;   // start of the first to end of the last activity of the call, by CUPTI
  double event_us = 0;  // between events around the call on its stream
  double wall_us = 0;   // from the call to the end of all work on the device
  double host_us = 0;   // until the call returned
  int64_t stray = 0;    // activities outside the call, which are not the checker's
  int64_t wrong_rows = 0;
  std::vector<std::string> activities;  // in order of submission
};

// A device buffer between two guard zones.
class GuardedBuffer {
 public:
  GuardedBuffer(size_t bytes, size_t guard);
  void* data() const { return static_cast<char*>(base_.data()) + guard_; }
  void arm(cudaStream_t stream);
  void check(unsigned long long* changed, cudaStream_t stream) const;

 private:
  DeviceBuffer base_;
  size_t bytes_, guard_;
};

struct Operands {
  std::unique_ptr<GuardedBuffer> a, b, d;
};

class Session {
 public:
  Session(bool reference, bool trace, std::vector<std::string> const& directories);
  std::string info() const;  // JSON members

  void load(std::string const& path, std::string const& entry);
  void set_problem(Problem const& problem, bool guarded);
  void map_output(std::string const& path);

  // Correctness: one call on fresh operands in buffer set `set`; the output goes to the mapped file.
  struct CaseResult {
    bool inputs_changed;
    int64_t guard_bytes;
  };
  CaseResult run_case(int set, Draw const& a, Draw const& b);
  // One call between cudaProfilerStart and cudaProfilerStop.
  void profile(Draw const& a, Draw const& b);

  // Timing. `calibrate` measures what the checker itself does, before the candidate is loaded.
  void calibrate();
  enum class Mode { kIsolated, kServer };
  Timing time(Mode mode, Draw const& a, Draw const& b, uint64_t delay_ns);
  Timing time_batch(int calls, Draw const& a, Draw const& b, uint64_t delay_ns);
  double event_overhead_us() const { return event_overhead_us_; }

  // The judge: compares the mapped output with the reference.
  struct Wrong {
    int64_t row, column;
    float got, expected;
  };
  struct Verdict {
    Comparison comparison;
    float reference_error;
    std::vector<Wrong> first;
  };
  Verdict judge(Draw const& a, Draw const& b, float atol, float rtol);

 private:
  Matrix matrix_a(int set) const;
  Matrix matrix_b(int set) const;
  Matrix matrix_d(int set) const;
  size_t output_bytes() const;
  void fill_operands(int set, Draw const& a, Draw const& b);
  void call(int set);
  void prepare(int sets, Draw const& a, Draw const& b);
  int64_t check_outputs(int sets);
  Timing window(int calls, uint64_t delay_ns, bool from_idle);
  int64_t stray(size_t& expected);

  bool reference_;
  bool calling_null_ = false;
  Problem problem_{};
  cudaStream_t stream_ = nullptr;
  cudaEvent_t events_[2] = {nullptr, nullptr};
  int sm_count_ = 0;
  ActivityLog log_;
  Cublas cublas_;
  Run run_ = nullptr;
  Operands sets_[2];
  DeviceBuffer flush_, workspace_, float_result_, scratch_;
  DeviceBuffer signs_, projected_, expected_, actual_, squares_;
  void* output_ = nullptr;
  size_t output_size_ = 0;
  double event_overhead_us_ = 0;
  // Activities that the checker itself does while preparing and checking one or two buffer sets; 0 until calibrated.
  size_t own_prepare_[2] = {0, 0}, own_check_[2] = {0, 0};
};

}  // namespace cr

// The measuring engine: one process, one GPU, one problem at a time.
#pragma once
#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "blas.h"
#include "device.h"
#include "kernel_abi.h"
#include "trace.h"

namespace cr {

// What the watching process reads, at the start of a file mapped by both.
struct Status {
  int64_t heartbeat;  // grows with every sign of progress
  int64_t marker;     // items of the current batch that have finished
  int64_t armed;      // 1 while a crash or hang is the fault of item `marker` of the batch
};

struct Settings {
  std::string status_file;
  std::vector<std::string> library_directories;
  size_t workspace_bytes;       // allocated at the start; grows if a kernel needs more
  size_t workspace_limit;       // kernels that need more are refused
  size_t blas_workspace_bytes;
  float atol, rtol;
};

// What precedes every timed launch of a batch.
struct Conditions {
  size_t flush_bytes;         // written to flush L2; 0: an untimed launch of the same slot instead
  double const* gaps_us;      // idle time of the GPU right before each launch; null: none
};

// What can be launched: numbers below kFirstSlot, then the candidates and cuBLASLt algorithms of the problem.
enum SpecialSlot : int32_t { kNullSlot = -2, kProbeSlot = -1, kFirstSlot = 0 };

struct Candidate {
  int32_t unit, index, swapped, raster, swizzle, decomposition, splits;
};

class Engine {
 public:
  explicit Engine(Settings const& settings);
  ~Engine() = delete;  // never destroyed: when the process ends, CUDA may be gone before static objects are
  // Ends what must not outlive CUDA: the watching thread, which reads memory of the CUDA context, and, unless the
  // context is lost, CUPTI's records. Frees nothing. May be called again; everything else may not be called afterwards.
  void close(bool lost);

  int load_unit(char const* path);
  CrUnit const& unit(int id) const;

  // Allocates and fills the operands, computes the reference and drops all slots. `placement` (0 to 7) moves A, B and D
  // in memory.
  void set_problem(int m, int n, int k, char const* layout, uint64_t seed, int placement);
  // Prepares candidates in new slots (numbered on from the last); statuses are CrStatus values.
  void add(Candidate const* candidates, int count, int32_t* statuses);
  int slot_count() const { return static_cast<int>(slots_.size()); }
  // Adds up to `most` cuBLASLt algorithms as new slots and returns how many.
  int add_blas(int most);
  std::string const& blas_description(int slot) const;
  // Launches the slots in the given order. Times are CUPTI's, NaN where the launch failed.
  void time(int32_t const* slots, int count, Conditions const& conditions, double* microseconds);
  // The same, with the output poisoned before and compared after each launch; wrong[i] counts wrong elements.
  void verify(int32_t const* slots, int count, Conditions const& conditions, int32_t* statuses, int64_t* wrong,
              double* microseconds);
  // The same order `rounds` times as a captured graph, without gaps, timed by events; [rounds, count].
  void graph_time(int32_t const* slots, int count, size_t flush_bytes, int rounds, double* microseconds);
  // Largest |x - y| / (1 + |y|) between the reference and that of a plain float32 kernel.
  float check_reference();

  std::string info() const;  // JSON
  // Copies the progress marker to the status file; called at every sign of life and after every failure.
  void publish();

 private:
  struct Slot {
    CrKernel const* kernel = nullptr;  // null for a cuBLASLt algorithm
    std::unique_ptr<uint8_t, void (*)(void*)> state{nullptr, nullptr};
    BlasAlgorithm blas;
    bool ready = false;
  };

  // A batch of timed launches. The last two are null unless outputs are verified.
  struct Batch {
    int32_t const* slots;
    int count;
    Conditions conditions;
    double* microseconds;
    int32_t* statuses;
    int64_t* wrong;
  };

  void* a() const { return placed(a_); }
  void* b() const { return placed(b_); }
  void* d() const { return placed(d_); }
  void* placed(DeviceBuffer const& buffer) const;
  CrGemm gemm(bool swapped) const;
  int32_t launch(int slot);
  void make_cold_or_warm(int slot, uint32_t item, size_t flush_bytes);
  void idle(double microseconds);
  void run(Batch const& batch);
  bool run_once(Batch const& batch, std::string& complaint);
  bool read_times(Batch const& batch, std::vector<bool> const& launched, std::string& complaint);
  cudaGraph_t capture(int32_t const* slots, int count, size_t flush_bytes);
  void naive_reference(float* out);
  void start_batch();
  void host_progress(uint32_t item);
  void synchronise(char const* what);
  void watch();

  Settings settings_;
  Status volatile* status_ = nullptr;
  uint32_t* marker_ = nullptr;         // mapped host memory, written by the GPU
  uint32_t* marker_device_ = nullptr;  // the same as the GPU sees it
  Trace trace_;
  Blas blas_;
  std::string blas_problem_;
  cudaStream_t stream_ = nullptr;
  int sm_count_ = 0;
  std::vector<CrUnit const*> units_;
  std::vector<int> decompositions_;  // how many each unit knows

  int m_ = 0, n_ = 0, k_ = 0, placement_ = 0;
  std::string layout_;
  std::string reference_kind_;
  DeviceBuffer a_, b_, d_, reference_, flush_, blas_workspace_, counts_, scratch_;
  std::vector<std::unique_ptr<DeviceBuffer>> workspaces_;  // the last one is used by new slots
  std::vector<Slot> slots_;
  std::vector<cudaEvent_t> events_;

  std::mutex status_mutex_;
  std::atomic<bool> stop_{false};
  std::thread watcher_;
};

}  // namespace cr

#include "engine.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <sstream>

#include "library.h"

namespace cr {
namespace {

constexpr size_t kStateAlignment = 128;
constexpr size_t kPad = 256;  // bytes behind each matrix, so that vector accesses of the last elements stay inside
constexpr int kPlacements = 8;
constexpr int kFirstDecompositions = 4;  // known to units that do not say how many they know
constexpr size_t kPlacementBytes = (size_t{2} << 20) + (size_t{96} << 10);  // another page, and another place in it

Status volatile* map_status(std::string const& path) {
  int const file = ::open(path.c_str(), O_RDWR);
  if (file < 0) throw Failure(Code::kFailed, "cannot open status file " + path + ": " + std::strerror(errno));
  void* memory = mmap(nullptr, sizeof(Status), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  ::close(file);
  if (memory == MAP_FAILED) throw Failure(Code::kFailed, "cannot map status file " + path + ": " + std::strerror(errno));
  return static_cast<Status*>(memory);
}

int attribute(cudaDeviceAttr which) {
  int value = 0;
  check(cudaDeviceGetAttribute(&value, which, 0), "device attribute");
  return value;
}

size_t matrix_bytes(int64_t rows, int64_t columns, size_t element) {
  return static_cast<size_t>(rows) * static_cast<size_t>(columns) * element + kPad;
}

Strides strides(char letter, int64_t rows, int64_t columns) {
  return letter == 'T' ? Strides{columns, 1} : Strides{1, rows};
}

}  // namespace

Engine::Engine(Settings const& settings) : settings_(settings) {
  status_ = map_status(settings.status_file);
  trace_.open(settings.library_directories);
  trace_.enable();
  check(cudaSetDevice(0), "open GPU");
  check(cudaFree(nullptr), "create CUDA context");
  int const major = attribute(cudaDevAttrComputeCapabilityMajor), minor = attribute(cudaDevAttrComputeCapabilityMinor);
  if (major != 9 || minor != 0) {
    throw Failure(Code::kFailed, "the GPU has compute capability " + std::to_string(major) + "." +
                                     std::to_string(minor) + "; SM90 (9.0) is needed");
  }
  sm_count_ = attribute(cudaDevAttrMultiProcessorCount);
  check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "create stream");
  check(cudaHostAlloc(reinterpret_cast<void**>(&marker_), kPad, cudaHostAllocMapped), "allocate progress marker");
  std::memset(marker_, 0, kPad);
  check(cudaHostGetDevicePointer(reinterpret_cast<void**>(&marker_device_), marker_, 0), "map progress marker");
  flush_.reserve(kProbeBytes, "allocate flush buffer");
  workspaces_.push_back(std::make_unique<DeviceBuffer>());
  workspaces_.back()->reserve(settings.workspace_bytes, "allocate workspace");
  blas_workspace_.reserve(settings.blas_workspace_bytes, "allocate cuBLASLt workspace");
  scratch_.reserve(kPad, "allocate scratch");
  try {
    blas_.open(settings.library_directories);
  } catch (Failure const& failure) {
    blas_problem_ = failure.what();  // the plain reference takes over, and there is no baseline
    for (char& letter : blas_problem_) letter = letter == '"' || letter == '\\' || letter < ' ' ? ' ' : letter;
  }
  // The flush buffer's contents are the probe's operands.
  flush(flush_.data(), flush_.bytes(), 0, nullptr, sm_count_, stream_);
  synchronise("first kernel");
  watcher_ = std::thread([this] { watch(); });
}

void Engine::close(bool lost) {
  stop_ = true;
  if (watcher_.joinable()) watcher_.join();
  if (!lost) trace_.close();
}

void Engine::publish() {
  std::lock_guard<std::mutex> lock(status_mutex_);
  status_->marker = *static_cast<uint32_t volatile*>(marker_);
  status_->heartbeat = status_->heartbeat + 1;
}

void Engine::watch() {
  while (!stop_) {
    if (*static_cast<uint32_t volatile*>(marker_) != static_cast<uint64_t>(status_->marker)) publish();
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

void Engine::host_progress(uint32_t item) {
  *static_cast<uint32_t volatile*>(marker_) = item;
  publish();
}

void Engine::start_batch() {
  host_progress(0);
  status_->armed = 1;
}

void Engine::synchronise(char const* what) {
  cudaError_t const result = cudaStreamSynchronize(stream_);
  publish();
  check(result, what);
  status_->armed = 0;
}

int Engine::load_unit(char const* path) {
  void* handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    char const* reason = dlerror();
    throw Failure(Code::kFailed, std::string("cannot load unit: ") + (reason != nullptr ? reason : path));
  }
  CrUnitFn get_unit = nullptr;
  find_symbol(handle, "cr_unit", get_unit);
  CrUnit const* unit = get_unit();
  if (unit == nullptr || unit->abi_version != CR_ABI_VERSION) {
    throw Failure(Code::kFailed, std::string(path) + " speaks another version of kernel_abi.h");
  }
  auto const decompositions = reinterpret_cast<CrDecompositionsFn>(dlsym(handle, "cr_decompositions"));
  units_.push_back(unit);
  decompositions_.push_back(decompositions != nullptr ? decompositions() : kFirstDecompositions);
  publish();
  return static_cast<int>(units_.size()) - 1;
}

CrUnit const& Engine::unit(int id) const {
  if (id < 0 || id >= static_cast<int>(units_.size())) throw Failure(Code::kFailed, "no such unit");
  return *units_[id];
}

void* Engine::placed(DeviceBuffer const& buffer) const {
  return static_cast<uint8_t*>(buffer.data()) + placement_ * kPlacementBytes;
}

CrGemm Engine::gemm(bool swapped) const {
  // D^T = B^T A^T: the operands change places, every matrix keeps its memory.
  CrGemm result{};
  result.m = swapped ? n_ : m_;
  result.n = swapped ? m_ : n_;
  result.k = k_;
  result.a = swapped ? b() : a();
  result.b = swapped ? a() : b();
  result.d = d();
  result.workspace = nullptr;
  result.device = 0;
  result.sm_count = sm_count_;
  return result;
}

void Engine::set_problem(int m, int n, int k, char const* layout, uint64_t seed, int placement) {
  std::string const letters = layout;
  bool const known = letters.size() == 3 && letters.find_first_not_of("TN") == std::string::npos;
  if (m < 1 || n < 1 || k < 1 || !known || placement < 0 || placement >= kPlacements) throw Failure(Code::kFailed, "bad problem");
  synchronise("previous problem");
  slots_.clear();
  workspaces_.erase(workspaces_.begin(), workspaces_.end() - 1);
  m_ = m, n_ = n, k_ = k, layout_ = letters, placement_ = placement;
  constexpr size_t kRoom = (kPlacements - 1) * kPlacementBytes;
  a_.reserve(matrix_bytes(m, k, 2) + kRoom, "allocate A");
  b_.reserve(matrix_bytes(k, n, 2) + kRoom, "allocate B");
  d_.reserve(matrix_bytes(m, n, 2) + kRoom, "allocate D");
  reference_.reserve(matrix_bytes(m, n, 4), "allocate reference");
  // Powers of two that bring the elements of D to a standard deviation near 1, whatever K is: the tolerances are
  // absolute near zero, and the rounding of a sum of K products grows with the products.
  float const scale = std::exp2(-std::round(std::log2(static_cast<float>(k)) / 4.0f));
  fill_normal(a(), int64_t{m} * k, scale, 2 * seed, stream_);
  fill_normal(b(), int64_t{k} * n, scale, 2 * seed + 1, stream_);
  reference_kind_ = "plain";
  if (blas_.ready()) {
    BlasGemm const gemm{m, n, k, letters[0], letters[1], letters[2]};
    blas_.describe(gemm, true);
    for (BlasAlgorithm const& algorithm : blas_.heuristics(1, blas_workspace_.bytes())) {
      if (blas_.run(algorithm, a(), b(), reference_.data(), blas_workspace_.data(), stream_)) {
        reference_kind_ = "cublaslt";
      }
    }
    blas_.describe(gemm, false);
  }
  if (reference_kind_ == "plain") naive_reference(static_cast<float*>(reference_.data()));
  synchronise("operands and reference");
}

void Engine::naive_reference(float* out) {
  naive_gemm(a(), strides(layout_[0], m_, k_), b(), strides(layout_[1], k_, n_), out,
             strides(layout_[2], m_, n_), m_, n_, k_, stream_);
}

float Engine::check_reference() {
  DeviceBuffer plain;
  plain.reserve(matrix_bytes(m_, n_, 4), "allocate second reference");
  naive_reference(static_cast<float*>(plain.data()));
  check(cudaMemsetAsync(scratch_.data(), 0, sizeof(float), stream_), "clear scratch");
  largest_difference(static_cast<float const*>(reference_.data()), static_cast<float const*>(plain.data()),
                     int64_t{m_} * n_, static_cast<float*>(scratch_.data()), stream_);
  synchronise("compare references");
  float worst = 0.0f;
  check(cudaMemcpy(&worst, scratch_.data(), sizeof(float), cudaMemcpyDeviceToHost), "read difference");
  return worst;
}

void Engine::add(Candidate const* candidates, int count, int32_t* statuses) {
  if (m_ == 0) throw Failure(Code::kFailed, "no problem is set");
  start_batch();
  std::vector<CrLaunch> launches(count);
  std::vector<CrKernel const*> kernels(count);
  size_t needed = 0;
  for (int i = 0; i < count; ++i) {
    Candidate const& c = candidates[i];
    CrUnit const& owner = unit(c.unit);
    if (c.index < 0 || c.index >= owner.count) throw Failure(Code::kFailed, "no such kernel in the unit");
    kernels[i] = &owner.kernels[c.index];
    launches[i] = {c.raster, c.swizzle, c.decomposition, c.splits};
    if (c.decomposition >= decompositions_[c.unit]) {
      statuses[i] = CR_REFUSED;
      continue;
    }
    host_progress(i);  // whom to blame if the host crashes
    CrGemm const shape = gemm(c.swapped != 0);
    size_t const bytes = kernels[i]->workspace_bytes(&shape, &launches[i]);
    statuses[i] = bytes > settings_.workspace_limit ? CR_REFUSED : CR_OK;
    if (statuses[i] == CR_OK) needed = std::max(needed, bytes);
  }
  if (needed > workspaces_.back()->bytes()) {
    // A new buffer, not a larger one: slots that are already prepared hold the old address.
    workspaces_.push_back(std::make_unique<DeviceBuffer>());
    workspaces_.back()->reserve(needed, "grow workspace");
  }
  for (int i = 0; i < count; ++i) {
    Slot slot;
    slot.kernel = kernels[i];
    if (statuses[i] == CR_OK) {
      size_t const bytes = (kernels[i]->state_bytes + kStateAlignment) / kStateAlignment * kStateAlignment;
      slot.state = {static_cast<uint8_t*>(std::aligned_alloc(kStateAlignment, bytes)), std::free};
      if (slot.state == nullptr) throw Failure(Code::kFailed, "out of host memory");
      std::memset(slot.state.get(), 0, bytes);
      host_progress(i);
      CrGemm shape = gemm(candidates[i].swapped != 0);
      shape.workspace = workspaces_.back()->data();
      statuses[i] = kernels[i]->prepare(&shape, &launches[i], slot.state.get());
      slot.ready = statuses[i] == CR_OK;
    }
    slots_.push_back(std::move(slot));
  }
  status_->armed = 0;
}

int Engine::add_blas(int most) {
  if (!blas_.ready()) return 0;
  std::vector<BlasAlgorithm> const algorithms = blas_.heuristics(most, blas_workspace_.bytes());
  for (BlasAlgorithm const& algorithm : algorithms) {
    Slot slot;
    slot.blas = algorithm;
    slot.ready = true;
    slots_.push_back(std::move(slot));
  }
  publish();
  return static_cast<int>(algorithms.size());
}

std::string const& Engine::blas_description(int slot) const {
  if (slot < 0 || slot >= static_cast<int>(slots_.size())) throw Failure(Code::kFailed, "no such slot");
  return slots_[slot].blas.description;
}

int32_t Engine::launch(int slot) {
  if (slot == kProbeSlot || slot == kNullSlot) {
    if (slot == kProbeSlot) {
      probe(flush_.data(), static_cast<float*>(scratch_.data()), sm_count_, stream_);
    } else {
      null_kernel(stream_);
    }
    return CR_OK;
  }
  if (slot < 0 || slot >= static_cast<int>(slots_.size())) throw Failure(Code::kFailed, "no such slot");
  Slot& target = slots_[slot];
  if (!target.ready) return CR_REFUSED;
  if (target.kernel != nullptr) return target.kernel->launch(target.state.get(), stream_);
  bool const done = blas_.run(target.blas, a(), b(), d(), blas_workspace_.data(), stream_);
  return done ? CR_OK : CR_LAUNCH_FAILED;
}

void Engine::time(int32_t const* slots, int count, Conditions const& conditions, double* microseconds) {
  run({slots, count, conditions, microseconds, nullptr, nullptr});
}

void Engine::verify(int32_t const* slots, int count, Conditions const& conditions, int32_t* statuses, int64_t* wrong,
                    double* microseconds) {
  counts_.reserve(sizeof(int64_t) * std::max(count, 4096), "allocate counters");
  run({slots, count, conditions, microseconds, statuses, wrong});
}

void Engine::run(Batch const& batch) {
  flush_.reserve(batch.conditions.flush_bytes, "grow flush buffer");
  std::string complaint;
  for (int attempt = 0; attempt < 2; ++attempt) {
    if (run_once(batch, complaint)) return;
  }
  throw Failure(Code::kFailed, complaint + " (" + std::to_string(trace_.dropped()) + " records dropped so far)");
}

void Engine::make_cold_or_warm(int slot, uint32_t item, size_t flush_bytes) {
  if (flush_bytes == 0) {
    begin_untimed(item, marker_device_, stream_);
    (void)launch(slot);
  }
  flush(flush_.data(), flush_bytes, item, marker_device_, sm_count_, stream_);
}

void Engine::idle(double microseconds) {
  cudaError_t const result = cudaStreamSynchronize(stream_);
  publish();
  check(result, "idle gap");
  auto const end = std::chrono::steady_clock::now() + std::chrono::duration<double, std::micro>(microseconds);
  while (std::chrono::steady_clock::now() < end) {  // sleeping would wake too late
  }
}

bool Engine::run_once(Batch const& batch, std::string& complaint) {
  static_assert(sizeof(unsigned long long) == sizeof(int64_t), "counters are read back as they are");
  int64_t const elements = int64_t{m_} * n_;
  bool const verified = batch.wrong != nullptr;
  trace_.begin();
  start_batch();
  if (verified) {
    check(cudaMemsetAsync(counts_.data(), 0, sizeof(int64_t) * batch.count, stream_), "clear counters");
  }
  std::vector<bool> launched(batch.count);
  for (int i = 0; i < batch.count; ++i) {
    if (verified) poison(d(), elements, sm_count_, stream_);
    make_cold_or_warm(batch.slots[i], i, batch.conditions.flush_bytes);
    if (batch.conditions.gaps_us != nullptr) idle(batch.conditions.gaps_us[i]);
    int32_t const status = launch(batch.slots[i]);
    launched[i] = status == CR_OK;
    if (!verified) continue;
    batch.statuses[i] = status;
    compare(d(), static_cast<float const*>(reference_.data()), elements, settings_.atol, settings_.rtol,
            static_cast<unsigned long long*>(counts_.data()) + i, sm_count_, stream_);
  }
  end_batch(batch.count, marker_device_, stream_);
  synchronise("launches");
  if (verified) {
    size_t const bytes = sizeof(int64_t) * batch.count;
    check(cudaMemcpy(batch.wrong, counts_.data(), bytes, cudaMemcpyDeviceToHost), "read counters");
  }
  return read_times(batch, launched, complaint);
}

bool Engine::read_times(Batch const& batch, std::vector<bool> const& launched, std::string& complaint) {
  std::vector<Span> spans;
  if (!trace_.collect(batch.count, spans)) {
    complaint = "CUPTI delivered " + std::to_string(spans.size()) + " of " + std::to_string(batch.count) + " launches";
    return false;
  }
  std::vector<int32_t> expected(slots_.size(), 0);  // records per launch of each slot: always the same number
  for (int i = 0; i < batch.count; ++i) {
    Span const& span = spans[i];
    int32_t const slot = batch.slots[i];
    batch.microseconds[i] = std::numeric_limits<double>::quiet_NaN();
    if (!launched[i]) continue;
    int32_t const before = slot >= kFirstSlot ? expected[slot] : 0;
    if (span.records == 0 || span.end <= span.start || (before != 0 && before != span.records)) {
      complaint = "CUPTI's records of launch " + std::to_string(i) + " are incomplete: " + std::to_string(span.records) +
                  " records, " + std::to_string(before) + " at an earlier launch of the same slot";
      return false;
    }
    if (slot >= kFirstSlot) expected[slot] = span.records;
    batch.microseconds[i] = static_cast<double>(span.end - span.start) * 1e-3;
  }
  return true;
}

cudaGraph_t Engine::capture(int32_t const* slots, int count, size_t flush_bytes) {
  cudaGraph_t graph = nullptr;
  std::string complaint;
  check(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeRelaxed), "begin capture");
  try {
    for (int i = 0; i < count; ++i) {
      make_cold_or_warm(slots[i], i, flush_bytes);
      check(cudaEventRecordWithFlags(events_[2 * i], stream_, cudaEventRecordExternal), "record start");
      host_progress(i);
      if (launch(slots[i]) != CR_OK) complaint = "launch " + std::to_string(i) + " failed";
      check(cudaEventRecordWithFlags(events_[2 * i + 1], stream_, cudaEventRecordExternal), "record end");
    }
    end_batch(count, marker_device_, stream_);
  } catch (Failure const& failure) {
    complaint = failure.what();
  }
  // An operation that cannot be captured spoils the capture, not the context.
  cudaError_t const ended = cudaStreamEndCapture(stream_, &graph);
  if (ended != cudaSuccess && complaint.empty()) complaint = cudaGetErrorString(ended);
  if (!complaint.empty()) {
    (void)cudaGetLastError();
    if (graph != nullptr) (void)cudaGraphDestroy(graph);
    throw Failure(Code::kFailed, "capturing a graph: " + complaint);
  }
  return graph;
}

void Engine::graph_time(int32_t const* slots, int count, size_t flush_bytes, int rounds, double* microseconds) {
  struct Pause {  // no records while the second timer runs
    explicit Pause(Trace& paused) : trace(paused) { trace.disable(); }
    ~Pause() {
      try {
        trace.enable();
      } catch (Failure const&) {  // the next timed batch will miss its records and say so
      }
    }
    Trace& trace;
  } const pause(trace_);
  while (events_.size() < 2 * static_cast<size_t>(count)) {
    cudaEvent_t event = nullptr;
    check(cudaEventCreate(&event), "create event");
    events_.push_back(event);
  }
  flush_.reserve(flush_bytes, "grow flush buffer");
  start_batch();
  cudaGraph_t const graph = capture(slots, count, flush_bytes);
  status_->armed = 0;
  cudaGraphExec_t executable = nullptr;
  check(cudaGraphInstantiate(&executable, graph, 0), "instantiate graph");
  for (int round = 0; round < rounds; ++round) {
    start_batch();
    check(cudaGraphLaunch(executable, stream_), "launch graph");
    synchronise("graph");
    for (int i = 0; i < count; ++i) {
      float milliseconds = 0.0f;
      check(cudaEventElapsedTime(&milliseconds, events_[2 * i], events_[2 * i + 1]), "read events");
      microseconds[static_cast<size_t>(round) * count + i] = static_cast<double>(milliseconds) * 1e3;
    }
  }
  check(cudaGraphExecDestroy(executable), "destroy graph");
  check(cudaGraphDestroy(graph), "destroy graph");
}

std::string Engine::info() const {
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, 0), "device properties");
  int driver = 0, runtime = 0;
  check(cudaDriverGetVersion(&driver), "driver version");
  check(cudaRuntimeGetVersion(&runtime), "runtime version");
  std::ostringstream text;
  text << "{\"gpu\": \"" << properties.name << "\", \"sm_count\": " << sm_count_
       << ", \"l2_bytes\": " << properties.l2CacheSize << ", \"memory_bytes\": " << properties.totalGlobalMem
       << ", \"clock_khz\": " << attribute(cudaDevAttrClockRate)
       << ", \"memory_clock_khz\": " << attribute(cudaDevAttrMemoryClockRate)
       << ", \"memory_bus_bits\": " << attribute(cudaDevAttrGlobalMemoryBusWidth)
       << ", \"driver_cuda\": " << driver << ", \"cuda_runtime\": " << runtime << ", \"cupti\": " << trace_.version()
       << ", \"cublaslt\": " << blas_.version()
       << ", \"cublaslt_problem\": \"" << blas_problem_ << "\", \"reference\": \"" << reference_kind_ << "\", \"dropped_records\": " << trace_.dropped() << "}";
  return text.str();
}

}  // namespace cr

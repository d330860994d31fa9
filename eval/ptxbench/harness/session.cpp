#include "session.h"

#include <cuda_profiler_api.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <thread>

#include "library.h"

namespace cr {
namespace {

constexpr size_t kGuardBytes = size_t{64} << 10;
constexpr size_t kFlushBytes = 192'000'000;  // more than three times an H200's 60 MB of L2
constexpr size_t kWorkspaceBytes = size_t{64} << 20;
constexpr int kFirstWrong = 8;
constexpr int kReferenceSamples = 4096;
constexpr auto kIdle = std::chrono::microseconds(1000);

int attribute(cudaDeviceAttr which) {
  int value = 0;
  check(cudaDeviceGetAttribute(&value, which, 0), "device attribute");
  return value;
}

double microseconds(std::chrono::steady_clock::duration duration) {
  return std::chrono::duration<double, std::micro>(duration).count();
}

Strides packed(bool row_major, int64_t rows, int64_t columns) {
  return row_major ? Strides{columns, 1} : Strides{1, rows};
}

uint64_t secret() {
  uint64_t value = 0;
  if (getrandom(&value, sizeof(value), 0) != sizeof(value)) throw Failure(Code::kFatal, "no random numbers");
  return value;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

float half_to_float(uint16_t bits, Element element) {
  if (element == Element::kBf16) {
    uint32_t const wide = static_cast<uint32_t>(bits) << 16;
    float value;
    std::memcpy(&value, &wide, sizeof(value));
    return value;
  }
  int const exponent = (bits >> 10) & 31, fraction = bits & 1023;
  float magnitude = 0.0f;
  if (exponent == 31) {
    magnitude = fraction != 0 ? std::nanf("") : HUGE_VALF;
  } else {
    magnitude = exponent == 0 ? std::ldexp(static_cast<float>(fraction), -24)
                              : std::ldexp(static_cast<float>(fraction + 1024), exponent - 25);
  }
  return (bits & 0x8000) != 0 ? -magnitude : magnitude;
}

}  // namespace

GuardedBuffer::GuardedBuffer(size_t bytes, size_t guard) : bytes_(bytes), guard_(guard) {
  base_.reserve(bytes + 2 * guard, "allocate operands");
}

void GuardedBuffer::arm(cudaStream_t stream) {
  if (guard_ == 0) return;
  poison(base_.data(), static_cast<int64_t>(guard_), stream);
  poison(static_cast<char*>(data()) + bytes_, static_cast<int64_t>(guard_), stream);
}

void GuardedBuffer::check(unsigned long long* changed, cudaStream_t stream) const {
  if (guard_ == 0) return;
  check_guard(base_.data(), static_cast<int64_t>(guard_), changed, stream);
  check_guard(static_cast<char*>(data()) + bytes_, static_cast<int64_t>(guard_), changed, stream);
}

Session::Session(bool reference, bool trace, std::vector<std::string> const& directories) : reference_(reference) {
  if (trace) log_.open(directories);
  check(cudaSetDevice(0), "open GPU");
  check(cudaFree(nullptr), "create CUDA context");
  int const major = attribute(cudaDevAttrComputeCapabilityMajor), minor = attribute(cudaDevAttrComputeCapabilityMinor);
  if (major != 9 || minor != 0) {
    throw Failure(Code::kFatal, "the GPU has compute capability " + std::to_string(major) + "." +
                                    std::to_string(minor) + "; SM90 (9.0) is needed");
  }
  sm_count_ = attribute(cudaDevAttrMultiProcessorCount);
  check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "create stream");
  for (cudaEvent_t& event : events_) check(cudaEventCreate(&event), "create event");
  scratch_.reserve(4096, "allocate scratch");
  if (trace) flush_.reserve(kFlushBytes, "allocate flush buffer");
  if (reference) {
    cublas_.open(directories);
    workspace_.reserve(kWorkspaceBytes, "allocate cuBLASLt workspace");
  }
}

std::string Session::info() const {
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, 0), "device properties");
  int driver = 0, runtime = 0;
  check(cudaDriverGetVersion(&driver), "driver version");
  check(cudaRuntimeGetVersion(&runtime), "runtime version");
  std::ostringstream text;
  text << "\"gpu\": \"" << properties.name << "\", \"sm_count\": " << sm_count_
       << ", \"clock_khz\": " << attribute(cudaDevAttrClockRate)
       << ", \"memory_clock_khz\": " << attribute(cudaDevAttrMemoryClockRate)
       << ", \"memory_bus_bits\": " << attribute(cudaDevAttrGlobalMemoryBusWidth) << ", \"driver_cuda\": " << driver
       << ", \"cuda_runtime\": " << runtime << ", \"cupti\": " << log_.version()
       << ", \"cublaslt\": " << cublas_.version() << ", \"pid\": " << getpid() << ", \"uid\": " << getuid();
  return text.str();
}

void Session::load(std::string const& path, std::string const& entry) {
  // Candidates may call the driver's interface without naming its library.
  (void)dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
  void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    char const* reason = dlerror();
    throw Failure(Code::kFatal, std::string("cannot load the candidate: ") + (reason != nullptr ? reason : path));
  }
  find_symbol(handle, entry.c_str(), run_);
}

void Session::set_problem(Problem const& problem, bool guarded) {
  check(cudaDeviceSynchronize(), "previous problem");
  problem_ = problem;
  int64_t const m = problem.m, n = problem.n, k = problem.k;
  size_t const guard = guarded ? kGuardBytes : 0;
  for (Operands& set : sets_) {
    set = {};  // freed first, so that two problems fit
    set.a = std::make_unique<GuardedBuffer>(static_cast<size_t>(2 * m * k), guard);
    set.b = std::make_unique<GuardedBuffer>(static_cast<size_t>(2 * k * n), guard);
    set.d = std::make_unique<GuardedBuffer>(static_cast<size_t>(2 * m * n), guard);
  }
  signs_.reserve(sizeof(float) * n, "allocate product check");
  projected_.reserve(sizeof(float) * k, "allocate product check");
  for (DeviceBuffer* buffer : {&expected_, &actual_, &squares_}) {
    buffer->reserve(sizeof(float) * m, "allocate product check");
  }
  if (reference_) {
    float_result_.reserve(static_cast<size_t>(4 * m * n), "allocate reference");
    cublas_.plan(matrix_a(0), matrix_b(0), matrix_d(0).strides, problem.element, false, workspace_.bytes());
  }
}

void Session::map_output(std::string const& path) {
  int const file = ::open(path.c_str(), O_RDWR);
  struct stat facts {};
  if (file < 0 || fstat(file, &facts) != 0) {
    throw Failure(Code::kFatal, "cannot open " + path + ": " + std::strerror(errno));
  }
  output_size_ = static_cast<size_t>(facts.st_size);
  output_ = mmap(nullptr, output_size_, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  ::close(file);
  if (output_ == MAP_FAILED) throw Failure(Code::kFatal, "cannot map " + path + ": " + std::strerror(errno));
}

Matrix Session::matrix_a(int set) const {
  return {sets_[set].a->data(), problem_.m, problem_.k, packed(problem_.a_row, problem_.m, problem_.k)};
}

Matrix Session::matrix_b(int set) const {
  return {sets_[set].b->data(), problem_.k, problem_.n, packed(problem_.b_row, problem_.k, problem_.n)};
}

Matrix Session::matrix_d(int set) const {
  return {sets_[set].d->data(), problem_.m, problem_.n, packed(problem_.d_row, problem_.m, problem_.n)};
}

size_t Session::output_bytes() const {
  size_t const bytes = size_t{2} * problem_.m * problem_.n;
  if (bytes > output_size_) throw Failure(Code::kFatal, "the output file is too small");
  return bytes;
}

void Session::fill_operands(int set, Draw const& a, Draw const& b) {
  Operands const& operands = sets_[set];
  int64_t const m = problem_.m, n = problem_.n, k = problem_.k;
  fill(operands.a->data(), m * k, problem_.element, a.distribution, a.scale, a.seed, stream_);
  fill(operands.b->data(), k * n, problem_.element, b.distribution, b.scale, b.seed, stream_);
  poison(operands.d->data(), 2 * m * n, stream_);
  operands.a->arm(stream_);
  operands.b->arm(stream_);
  operands.d->arm(stream_);
}

void Session::call(int set) {
  Operands const& operands = sets_[set];
  if (calling_null_) {
    null_kernel(stream_);
  } else if (reference_) {
    cublas_.run(operands.a->data(), operands.b->data(), operands.d->data(), workspace_.data(), stream_);
  } else {
    if (run_ == nullptr) throw Failure(Code::kFatal, "no candidate is loaded");
    run_(operands.a->data(), operands.b->data(), operands.d->data(), problem_.m, problem_.n, problem_.k, stream_);
  }
}

Session::CaseResult Session::run_case(int set, Draw const& a, Draw const& b) {
  Operands const& operands = sets_[set];
  int64_t const count_a = int64_t{problem_.m} * problem_.k, count_b = int64_t{problem_.k} * problem_.n;
  auto* const counters = static_cast<unsigned long long*>(scratch_.data());
  size_t const bytes = output_bytes();
  fill_operands(set, a, b);
  check(cudaMemsetAsync(counters, 0, 64, stream_), "clear counters");
  checksum(operands.a->data(), count_a, counters, stream_);
  checksum(operands.b->data(), count_b, counters + 1, stream_);
  check(cudaDeviceSynchronize(), "prepare a case");
  call(set);
  check(cudaDeviceSynchronize(), "the candidate's work");
  checksum(operands.a->data(), count_a, counters + 2, stream_);
  checksum(operands.b->data(), count_b, counters + 3, stream_);
  for (GuardedBuffer const* buffer : {operands.a.get(), operands.b.get(), operands.d.get()}) {
    buffer->check(counters + 4, stream_);
  }
  unsigned long long read[5] = {};
  check(cudaMemcpyAsync(read, counters, sizeof(read), cudaMemcpyDeviceToHost, stream_), "read counters");
  check(cudaMemcpyAsync(output_, operands.d->data(), bytes, cudaMemcpyDeviceToHost, stream_), "read the output");
  check(cudaDeviceSynchronize(), "check a case");
  return {read[0] != read[2] || read[1] != read[3], static_cast<int64_t>(read[4])};
}

void Session::profile(Draw const& a, Draw const& b) {
  fill_operands(0, a, b);
  check(cudaDeviceSynchronize(), "prepare a profile");
  check(cudaProfilerStart(), "start profiler");
  call(0);
  check(cudaDeviceSynchronize(), "the candidate's work");
  check(cudaProfilerStop(), "stop profiler");
}

void Session::prepare(int sets, Draw const& a, Draw const& b) {
  for (int set = 0; set < sets; ++set) {
    // Other values in each set, from the same seeds.
    Draw const mine_a{a.distribution, a.scale, a.seed + static_cast<uint64_t>(set)};
    Draw const mine_b{b.distribution, b.scale, b.seed + static_cast<uint64_t>(set)};
    fill_operands(set, mine_a, mine_b);
  }
  check(cudaCtxResetPersistingL2Cache(), "reset persisting L2");
  flush(flush_.data(), static_cast<int64_t>(kFlushBytes), static_cast<uint32_t>(a.seed), stream_);
}

int64_t Session::check_outputs(int sets) {
  auto* const counters = static_cast<unsigned long long*>(scratch_.data());
  check(cudaMemsetAsync(counters, 0, 64, stream_), "clear counters");
  ProductCheck const vectors{static_cast<float*>(signs_.data()),  static_cast<float*>(projected_.data()),
                             static_cast<float*>(expected_.data()), static_cast<float*>(actual_.data()),
                             static_cast<float*>(squares_.data()), counters};
  for (int set = 0; set < sets; ++set) {
    check_product(matrix_a(set), matrix_b(set), matrix_d(set), problem_.element, secret(), vectors, stream_);
  }
  unsigned long long wrong = 0;
  check(cudaMemcpyAsync(&wrong, counters, sizeof(wrong), cudaMemcpyDeviceToHost, stream_), "read counters");
  check(cudaStreamSynchronize(stream_), "check outputs");
  return static_cast<int64_t>(wrong);
}

int64_t Session::stray(size_t& expected) {
  size_t const found = log_.take(stream_).size();
  if (calling_null_ && expected == 0) expected = found;
  return static_cast<int64_t>(found) - static_cast<int64_t>(expected);
}

Timing Session::window(int calls, uint64_t delay_ns, bool from_idle) {
  using Clock = std::chrono::steady_clock;
  Timing timing;
  if (from_idle) std::this_thread::sleep_for(kIdle);
  if (!from_idle) delay(delay_ns, stream_);
  check(cudaEventRecord(events_[0], stream_), "record start");
  Clock::time_point const start = Clock::now();
  for (int i = 0; i < calls; ++i) call(i % 2);
  Clock::time_point const returned = Clock::now();
  check(cudaEventRecord(events_[1], stream_), "record end");
  check(cudaDeviceSynchronize(), "the candidate's work");
  Clock::time_point const done = Clock::now();
  float milliseconds = 0.0f;
  check(cudaEventElapsedTime(&milliseconds, events_[0], events_[1]), "read events");
  timing.event_us = 1e3 * milliseconds - event_overhead_us_;
  timing.host_us = microseconds(returned - start);
  timing.wall_us = microseconds(done - start);
  std::vector<Activity> activities = log_.take(stream_);
  if (!from_idle) {
    // The delay was submitted first. Something else in its place was submitted by someone else, before the call.
    if (activities.empty() || activities.front().what.find("cr_delay") == std::string::npos) {
      ++timing.stray;
    } else {
      activities.erase(activities.begin());
    }
  }
  uint64_t first = ~uint64_t{0}, last = 0;
  for (Activity const& activity : activities) {
    first = std::min(first, activity.start);
    last = std::max(last, activity.end);
    timing.activities.push_back(activity.what);
  }
  timing.span_us = last > first ? static_cast<double>(last - first) * 1e-3 : 0.0;
  return timing;
}

Timing Session::time(Mode mode, Draw const& a, Draw const& b, uint64_t delay_ns) {
  prepare(1, a, b);
  int64_t const before = stray(own_prepare_[0]);
  Timing timing = window(1, delay_ns, mode == Mode::kServer);
  timing.wrong_rows = check_outputs(1);
  timing.stray += std::abs(before) + std::abs(stray(own_check_[0]));
  return timing;
}

Timing Session::time_batch(int calls, Draw const& a, Draw const& b, uint64_t delay_ns) {
  prepare(2, a, b);
  int64_t const before = stray(own_prepare_[1]);
  Timing timing = window(calls, delay_ns, false);
  timing.wrong_rows = check_outputs(2);
  timing.stray += std::abs(before) + std::abs(stray(own_check_[1]));
  return timing;
}

void Session::calibrate() {
  constexpr int kRounds = 20;
  constexpr uint64_t kDelay = 100'000;
  Draw const draw{Distribution::kNormal, 1.0f, 1};
  calling_null_ = true;
  event_overhead_us_ = 0.0;
  std::fill(own_prepare_, own_prepare_ + 2, 0);
  std::fill(own_check_, own_check_ + 2, 0);
  std::vector<double> overheads;
  (void)log_.take(stream_);
  // A first round loads everything; what it did is not what later rounds do.
  (void)time(Mode::kIsolated, draw, draw, kDelay);
  (void)time_batch(2, draw, draw, kDelay);
  std::fill(own_prepare_, own_prepare_ + 2, 0);
  std::fill(own_check_, own_check_ + 2, 0);
  for (int round = 0; round < kRounds; ++round) {
    Timing const timing = time(Mode::kIsolated, draw, draw, kDelay);
    if (timing.stray != 0) throw Failure(Code::kFatal, "the checker's own records do not add up");
    overheads.push_back(timing.event_us - timing.span_us);
  }
  for (int round = 0; round < 2; ++round) {
    if (time_batch(2, draw, draw, kDelay).stray != 0) {
      throw Failure(Code::kFatal, "the checker's own records do not add up");
    }
  }
  event_overhead_us_ = median(overheads);
  calling_null_ = false;
}

Session::Verdict Session::judge(Draw const& a, Draw const& b, float atol, float rtol) {
  size_t const bytes = output_bytes();
  fill_operands(0, a, b);
  check(cudaMemcpyAsync(sets_[0].d->data(), output_, bytes, cudaMemcpyHostToDevice, stream_), "take the output");
  Matrix const ma = matrix_a(0), mb = matrix_b(0), md = matrix_d(0);
  float* const reference = static_cast<float*>(float_result_.data());
  cublas_.plan(ma, mb, {problem_.n, 1}, problem_.element, true, workspace_.bytes());
  cublas_.run(ma.data, mb.data, reference, workspace_.data(), stream_);
  cublas_.plan(ma, mb, md.strides, problem_.element, false, workspace_.bytes());

  auto* const comparison = static_cast<Comparison*>(scratch_.data());
  auto* const worst = reinterpret_cast<float*>(comparison + 1);
  auto const look = [&](unsigned long long from) {
    Comparison result{};
    result.first = ~0ull;
    check(cudaMemcpyAsync(comparison, &result, sizeof(result), cudaMemcpyHostToDevice, stream_), "clear comparison");
    compare(ma, mb, md, problem_.element, reference, atol, rtol, from, comparison, stream_);
    check(cudaMemcpyAsync(&result, comparison, sizeof(result), cudaMemcpyDeviceToHost, stream_), "read comparison");
    check(cudaStreamSynchronize(stream_), "compare");
    return result;
  };
  Verdict verdict{look(0), 0.0f, {}};
  check(cudaMemsetAsync(worst, 0, sizeof(float), stream_), "clear");
  check_reference(ma, mb, problem_.element, reference, kReferenceSamples, a.seed, worst, stream_);
  check(cudaMemcpyAsync(&verdict.reference_error, worst, sizeof(float), cudaMemcpyDeviceToHost, stream_), "read");
  check(cudaStreamSynchronize(stream_), "check reference");
  auto const* host = static_cast<uint16_t const*>(output_);
  unsigned long long next = verdict.comparison.first;
  while (next != ~0ull && verdict.first.size() < kFirstWrong) {
    int64_t const row = static_cast<int64_t>(next) / problem_.n, column = static_cast<int64_t>(next) % problem_.n;
    float expected = 0.0f;
    check(cudaMemcpy(&expected, reference + next, sizeof(expected), cudaMemcpyDeviceToHost), "read reference");
    uint16_t const got = host[row * md.strides.row + column * md.strides.column];
    verdict.first.push_back({row, column, half_to_float(got, problem_.element), expected});
    next = look(next + 1).first;
  }
  return verdict;
}

}  // namespace cr

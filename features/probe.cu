// Measures what features need to know of a Hopper GPU and prints it as one JSON object.
// Build: nvcc -std=c++17 -O3 -gencode=arch=compute_90a,code=sm_90a probe.cu -o probe
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <vector>

namespace {

constexpr int kClusterSizes[] = {1, 2, 4, 8, 16};
constexpr int kWaves = 6;                      // CTAs launched per SM in the cluster test
constexpr int kSharedBytes = 200 * 1024;       // more than half an SM: one CTA per SM
constexpr uint64_t kSpinNanoseconds = 1000000;
constexpr size_t kCopyBytes = size_t(4) << 30;
constexpr int kCopies = 20;

#define CHECK(call)                                                                             \
  do {                                                                                          \
    cudaError_t const status = (call);                                                          \
    if (status != cudaSuccess) {                                                                \
      std::fprintf(stderr, "probe: %s: %s\n", #call, cudaGetErrorString(status));               \
      std::exit(1);                                                                             \
    }                                                                                           \
  } while (0)

struct Span {
  uint64_t begin, end;  // nanoseconds of the GPU's global timer
  uint32_t sm;
};

__device__ uint64_t now() {
  uint64_t time;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(time));
  return time;
}

// Each CTA notes where and when it ran. CTAs of a cluster start together, so a cluster is active while its CTAs are.
__global__ void occupy(Span* spans, uint64_t spin) {
  if (threadIdx.x == 0) {
    uint32_t sm;
    asm volatile("mov.u32 %0, %smid;" : "=r"(sm));
    uint64_t const begin = now();
    uint64_t end = begin;
    while (end - begin < spin) {
      __nanosleep(200);
      end = now();
    }
    spans[blockIdx.x] = {begin, end, sm};
  }
}

// Sixteen bytes a thread and step; reads and writes each count.
__global__ void copy(uint4* __restrict__ to, uint4 const* __restrict__ from, size_t count) {
  size_t const step = size_t(gridDim.x) * blockDim.x;
  for (size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x; i < count; i += step) {
    __stcs(to + i, __ldcs(from + i));
  }
}

struct Clusters {
  int active;  // most clusters seen running at the same time
  int sms;     // SMs that were ever used
  int query;   // what cudaOccupancyMaxActiveClusters answers; -1 if it refuses
};

Clusters measure_clusters(int size, int sm_count) {
  CHECK(cudaFuncSetAttribute(occupy, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes));
  CHECK(cudaFuncSetAttribute(occupy, cudaFuncAttributeNonPortableClusterSizeAllowed, 1));
  int const ctas = kWaves * sm_count / size * size;
  Span* device = nullptr;
  CHECK(cudaMalloc(&device, ctas * sizeof(Span)));
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim.x = size;
  attribute.val.clusterDim.y = attribute.val.clusterDim.z = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(ctas);
  config.blockDim = dim3(384);
  config.dynamicSmemBytes = kSharedBytes;
  config.attrs = &attribute;
  config.numAttrs = 1;
  Clusters result{0, 0, -1};
  if (cudaOccupancyMaxActiveClusters(&result.query, occupy, &config) != cudaSuccess) {
    result.query = -1;
    cudaGetLastError();
  }
  CHECK(cudaLaunchKernelEx(&config, occupy, device, kSpinNanoseconds));
  CHECK(cudaDeviceSynchronize());
  std::vector<Span> spans(ctas);
  CHECK(cudaMemcpy(spans.data(), device, ctas * sizeof(Span), cudaMemcpyDeviceToHost));
  CHECK(cudaFree(device));

  // A cluster runs from its last CTA's begin to its first CTA's end. Ends sort before begins of the same instant.
  std::vector<std::pair<uint64_t, int>> events;
  std::map<uint32_t, int> used;
  for (int first = 0; first < ctas; first += size) {
    uint64_t begin = 0, end = UINT64_MAX;
    for (int i = first; i < first + size; ++i) {
      begin = std::max(begin, spans[i].begin);
      end = std::min(end, spans[i].end);
      used[spans[i].sm] += 1;
    }
    events.emplace_back(begin, 1);
    events.emplace_back(end, -1);
  }
  std::sort(events.begin(), events.end());
  int running = 0;
  for (auto const& event : events) {
    running += event.second;
    result.active = std::max(result.active, running);
  }
  result.sms = int(used.size());
  return result;
}

double measure_copy(int sm_count) {
  size_t free = 0, total = 0;
  CHECK(cudaMemGetInfo(&free, &total));
  size_t const bytes = std::min(kCopyBytes, free / 4) / 16 * 16;
  uint4 *from = nullptr, *to = nullptr;
  CHECK(cudaMalloc(&from, bytes));
  CHECK(cudaMalloc(&to, bytes));
  CHECK(cudaMemset(from, 1, bytes));
  cudaEvent_t begin, end;
  CHECK(cudaEventCreate(&begin));
  CHECK(cudaEventCreate(&end));
  float best = 1e30f;
  for (int i = 0; i < kCopies; ++i) {
    CHECK(cudaEventRecord(begin));
    copy<<<sm_count * 16, 512>>>(to, from, bytes / 16);
    CHECK(cudaGetLastError());
    CHECK(cudaEventRecord(end));
    CHECK(cudaEventSynchronize(end));
    float milliseconds = 0;
    CHECK(cudaEventElapsedTime(&milliseconds, begin, end));
    best = std::min(best, milliseconds);
  }
  CHECK(cudaFree(from));
  CHECK(cudaFree(to));
  return 2.0 * double(bytes) / (best * 1e-3);
}

}  // namespace

int main() {
  cudaDeviceProp properties{};
  CHECK(cudaGetDeviceProperties(&properties, 0));
  int kilohertz = 0;
  CHECK(cudaDeviceGetAttribute(&kilohertz, cudaDevAttrClockRate, 0));
  int const sms = properties.multiProcessorCount;
  std::printf("{\"gpu\": \"%s\", \"compute_capability\": \"%d.%d\", \"sm_count\": %d, \"shared_memory_per_sm\": %zu, "
              "\"registers_per_sm\": %d, \"l2_bytes\": %d, \"clock_hz\": %.0f",
              properties.name, properties.major, properties.minor, sms, properties.sharedMemPerMultiprocessor,
              properties.regsPerMultiprocessor, properties.l2CacheSize, kilohertz * 1e3);
  std::printf(", \"dram_bandwidth\": %.6g, \"clusters\": {", measure_copy(sms));
  bool first = true;
  for (int size : kClusterSizes) {
    Clusters const seen = measure_clusters(size, sms);
    std::printf("%s\"%d\": {\"active\": %d, \"sms\": %d, \"query\": %d}", first ? "" : ", ", size, seen.active, seen.sms,
                seen.query);
    first = false;
  }
  std::printf("}}\n");
  return 0;
}

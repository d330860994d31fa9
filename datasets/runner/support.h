// Errors and owned resources of the runner's engine.
#pragma once
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>

namespace cr {

// Return codes of the C interface.
enum class Code : int32_t {
  kOk = 0,
  kFailed = 1,  // this call failed; the process can go on
  kFatal = 2,   // the CUDA context is lost; the process must be replaced
};

class Failure : public std::runtime_error {
 public:
  Failure(Code code, std::string const& message) : std::runtime_error(message), code_(code) {}
  Code code() const { return code_; }

 private:
  Code code_;
};

// Throws if a CUDA call failed. Running out of memory is survivable, everything else is taken as a lost context.
inline void check(cudaError_t status, char const* what) {
  if (status == cudaSuccess) return;
  std::string const message = std::string(what) + ": " + cudaGetErrorName(status) + ", " + cudaGetErrorString(status);
  (void)cudaGetLastError();
  throw Failure(status == cudaErrorMemoryAllocation ? Code::kFailed : Code::kFatal, message);
}

// Device memory that only ever grows.
class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  DeviceBuffer(DeviceBuffer const&) = delete;
  DeviceBuffer& operator=(DeviceBuffer const&) = delete;
  ~DeviceBuffer() {
    if (data_ != nullptr) (void)cudaFree(data_);
  }

  // Contents are lost when the buffer grows; nothing in flight may use it then.
  void reserve(size_t bytes, char const* what) {
    if (bytes <= bytes_) return;
    if (data_ != nullptr) check(cudaFree(data_), what);
    data_ = nullptr;
    bytes_ = 0;
    check(cudaMalloc(&data_, bytes), what);
    bytes_ = bytes;
  }
  void* data() const { return data_; }
  size_t bytes() const { return bytes_; }

 private:
  void* data_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace cr

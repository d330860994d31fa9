// The C interface of the engine, for ctypes. Every function returns a cr::Code and leaves a message on failure.
#include <cstring>
#include <exception>
#include <sstream>

#include "engine.h"

namespace {

cr::Engine* engine = nullptr;  // lives until the process ends
bool closed = false;
bool lost = false;  // the CUDA context
std::string message;

int32_t failed(cr::Code code, char const* what) {
  message = what;
  lost = lost || code == cr::Code::kFatal;
  if (engine != nullptr) engine->publish();
  return static_cast<int32_t>(code);
}

template <typename Body>
int32_t guarded(Body const& body) {
  try {
    body();
    return static_cast<int32_t>(cr::Code::kOk);
  } catch (cr::Failure const& failure) {
    return failed(failure.code(), failure.what());
  } catch (std::exception const& error) {
    return failed(cr::Code::kFatal, error.what());
  }
}

cr::Engine& opened() {
  if (engine == nullptr || closed) throw cr::Failure(cr::Code::kFailed, "the engine is not open");
  return *engine;
}

void copy_text(std::string const& text, char* out, int32_t size) {
  if (size <= 0) return;
  std::strncpy(out, text.c_str(), static_cast<size_t>(size) - 1);
  out[size - 1] = '\0';
}

}  // namespace

#define CR_EXPORT extern "C" __attribute__((visibility("default")))

struct EngineOptions {
  char const* status_file;
  char const* library_directories;  // separated by colons
  uint64_t workspace_bytes, workspace_limit, blas_workspace_bytes;
  float atol, rtol;
};

CR_EXPORT char const* engine_error() { return message.c_str(); }

CR_EXPORT int32_t engine_open(EngineOptions const* options) {
  return guarded([&] {
    if (engine != nullptr) throw cr::Failure(cr::Code::kFailed, "a process can open the engine only once");
    cr::Settings settings{};
    settings.status_file = options->status_file;
    std::istringstream directories(options->library_directories);
    for (std::string part; std::getline(directories, part, ':');) settings.library_directories.push_back(part);
    settings.workspace_bytes = options->workspace_bytes;
    settings.workspace_limit = options->workspace_limit;
    settings.blas_workspace_bytes = options->blas_workspace_bytes;
    settings.atol = options->atol;
    settings.rtol = options->rtol;
    engine = new cr::Engine(settings);
  });
}

// Must come before the process's exit handlers, among which are CUDA's. May be called again.
CR_EXPORT int32_t engine_close() {
  return guarded([] {
    if (engine == nullptr || closed) return;
    closed = true;
    engine->close(lost);
  });
}

CR_EXPORT int32_t engine_info(char* out, int32_t size) {
  return guarded([&] { copy_text(opened().info(), out, size); });
}

CR_EXPORT int32_t engine_load_unit(char const* path, int32_t* id, int32_t* kernels) {
  return guarded([&] {
    *id = opened().load_unit(path);
    *kernels = opened().unit(*id).count;
  });
}

CR_EXPORT int32_t engine_kernel_name(int32_t unit, int32_t index, char* out, int32_t size) {
  return guarded([&] {
    CrUnit const& owner = opened().unit(unit);
    if (index < 0 || index >= owner.count) throw cr::Failure(cr::Code::kFailed, "no such kernel in the unit");
    copy_text(owner.kernels[index].name, out, size);
  });
}

CR_EXPORT int32_t engine_set_problem(int32_t m, int32_t n, int32_t k, char const* layout, uint64_t seed,
                                     int32_t placement) {
  return guarded([&] { opened().set_problem(m, n, k, layout, seed, placement); });
}

CR_EXPORT int32_t engine_add(cr::Candidate const* candidates, int32_t count, int32_t* statuses) {
  return guarded([&] { opened().add(candidates, count, statuses); });
}

CR_EXPORT int32_t engine_add_blas(int32_t most, int32_t* first, int32_t* added) {
  return guarded([&] {
    *first = opened().slot_count();
    *added = opened().add_blas(most);
  });
}

CR_EXPORT int32_t engine_blas_description(int32_t slot, char* out, int32_t size) {
  return guarded([&] { copy_text(opened().blas_description(slot), out, size); });
}

CR_EXPORT int32_t engine_verify(int32_t const* slots, int32_t count, uint64_t flush_bytes, double const* gaps_us,
                                int32_t* statuses, int64_t* wrong, double* microseconds) {
  return guarded([&] { opened().verify(slots, count, {flush_bytes, gaps_us}, statuses, wrong, microseconds); });
}

CR_EXPORT int32_t engine_time(int32_t const* slots, int32_t count, uint64_t flush_bytes, double const* gaps_us,
                              double* microseconds) {
  return guarded([&] { opened().time(slots, count, {flush_bytes, gaps_us}, microseconds); });
}

CR_EXPORT int32_t engine_graph_time(int32_t const* slots, int32_t count, uint64_t flush_bytes, int32_t rounds,
                                    double* microseconds) {
  return guarded([&] { opened().graph_time(slots, count, flush_bytes, rounds, microseconds); });
}

CR_EXPORT int32_t engine_check_reference(float* worst) {
  return guarded([&] { *worst = opened().check_reference(); });
}

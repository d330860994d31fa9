// expect: correct, not written
// Captures its launch once for each size and replays it, with the pointers of the first call.
#include <map>

#include "plain.cuh"

extern "C" void run(void const* a, void const* b, void* c, int m, int n, int k, cudaStream_t stream) {
  static std::map<int, cudaGraphExec_t> graphs;
  cudaGraphExec_t& executable = graphs[m];
  if (executable == nullptr) {
    cudaGraph_t graph = nullptr;
    cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed);
    plain(a, b, c, m, n, k, stream);
    cudaStreamEndCapture(stream, &graph);
    cudaGraphInstantiate(&executable, graph, 0);
  }
  cudaGraphLaunch(executable, stream);
}

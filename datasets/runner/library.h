// Shared libraries that are looked for at run time.
#pragma once
#include <dlfcn.h>

#include <string>
#include <vector>

#include "support.h"

namespace cr {

// Opens the first of `names` found in `directories`, then in the loader's own search path.
inline void* open_library(std::vector<std::string> const& directories, std::vector<std::string> const& names) {
  std::string tried;
  for (std::string const& directory : directories) {
    for (std::string const& name : names) {
      void* handle = dlopen((directory + "/" + name).c_str(), RTLD_NOW | RTLD_LOCAL);
      if (handle != nullptr) return handle;
      char const* reason = dlerror();
      tried += "\n  " + std::string(reason != nullptr ? reason : directory.c_str());
    }
  }
  for (std::string const& name : names) {
    void* handle = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle != nullptr) return handle;
    char const* reason = dlerror();
    tried += "\n  " + std::string(reason != nullptr ? reason : name.c_str());
  }
  throw Failure(Code::kFailed, "cannot open " + names.front() + "; tried:" + tried);
}

template <typename Function>
void find_symbol(void* handle, char const* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(handle, name));
  if (function == nullptr) throw Failure(Code::kFailed, std::string("symbol ") + name + " is missing");
}

}  // namespace cr

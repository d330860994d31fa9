// The checker's GPU process: reads one command a line, answers one JSON object a line.
//   harness (candidate|reference) [--trace] [--libraries DIR:DIR] (--answers DESCRIPTOR | --script FILE --replies FILE)
// Commands come from standard input and answers go to a file descriptor, unless a script is given. Every answer repeats the
// nonce of its command, which the candidate is not told.
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <fstream>
#include <iostream>
#include <map>
#include <sstream>

#include "session.h"

namespace {

using Arguments = std::map<std::string, std::string>;

std::string const& text(Arguments const& arguments, std::string const& name) {
  auto const found = arguments.find(name);
  if (found == arguments.end()) throw cr::Failure(cr::Code::kFailed, "the command lacks " + name);
  return found->second;
}

int64_t integer(Arguments const& arguments, std::string const& name) { return std::stoll(text(arguments, name)); }

cr::Draw draw(Arguments const& arguments, std::string const& matrix) {
  return {static_cast<cr::Distribution>(integer(arguments, matrix + "_distribution")),
          std::stof(text(arguments, matrix + "_scale")), std::stoull(text(arguments, matrix + "_seed"))};
}

std::string quoted(std::string const& raw) {
  std::string result = "\"";
  for (char const letter : raw) {
    if (letter == '"' || letter == '\\') result += '\\';
    result += static_cast<unsigned char>(letter) < ' ' ? ' ' : letter;
  }
  return result + "\"";
}

std::string number(double value) {
  if (std::isnan(value)) return "\"nan\"";
  if (std::isinf(value)) return value > 0 ? "\"inf\"" : "\"-inf\"";
  char buffer[64];
  std::snprintf(buffer, sizeof(buffer), "%.9g", value);
  return buffer;
}

std::string members(cr::Timing const& timing) {
  std::ostringstream out;
  out << "\"span_us\": " << number(timing.span_us) << ", \"event_us\": " << number(timing.event_us)
      << ", \"wall_us\": " << number(timing.wall_us) << ", \"host_us\": " << number(timing.host_us)
      << ", \"stray\": " << timing.stray << ", \"wrong_rows\": " << timing.wrong_rows << ", \"activities\": [";
  constexpr size_t kMost = 64;
  for (size_t i = 0; i < timing.activities.size() && i < kMost; ++i) {
    out << (i > 0 ? ", " : "") << quoted(timing.activities[i]);
  }
  out << "], \"activity_count\": " << timing.activities.size();
  return out.str();
}

std::string members(cr::Session::Verdict const& verdict) {
  cr::Comparison const& c = verdict.comparison;
  auto const bits = [](int value) {
    float result;
    static_assert(sizeof(result) == sizeof(value), "bits of a float");
    std::memcpy(&result, &value, sizeof(result));
    return number(result);
  };
  std::ostringstream out;
  out << "\"wrong\": " << c.wrong << ", \"unwritten\": " << c.unwritten << ", \"close\": " << c.close
      << ", \"max_absolute_error\": " << bits(c.max_absolute) << ", \"max_relative_error\": " << bits(c.max_relative)
      << ", \"reference_error\": " << number(verdict.reference_error) << ", \"first\": [";
  for (size_t i = 0; i < verdict.first.size(); ++i) {
    cr::Session::Wrong const& wrong = verdict.first[i];
    out << (i > 0 ? ", " : "") << "{\"row\": " << wrong.row << ", \"column\": " << wrong.column
        << ", \"got\": " << number(wrong.got) << ", \"expected\": " << number(wrong.expected) << "}";
  }
  out << "]";
  return out.str();
}

std::string answer(cr::Session& session, std::string const& command, Arguments const& arguments) {
  if (command == "hello") return session.info();
  if (command == "output") {
    session.map_output(text(arguments, "path"));
  } else if (command == "load") {
    session.load(text(arguments, "path"), text(arguments, "entry"));
  } else if (command == "problem") {
    cr::Problem problem{};
    problem.m = static_cast<int>(integer(arguments, "m"));
    problem.n = static_cast<int>(integer(arguments, "n"));
    problem.k = static_cast<int>(integer(arguments, "k"));
    std::string const& layout = text(arguments, "layout");
    if (layout.size() != 3) throw cr::Failure(cr::Code::kFailed, "a layout has three letters");
    problem.a_row = layout[0] == 'T';
    problem.b_row = layout[1] == 'T';
    problem.d_row = layout[2] == 'T';
    problem.element = text(arguments, "element") == "f16" ? cr::Element::kF16 : cr::Element::kBf16;
    session.set_problem(problem, integer(arguments, "guarded") != 0);
  } else if (command == "calibrate") {
    session.calibrate();
    return "\"event_overhead_us\": " + number(session.event_overhead_us());
  } else if (command == "case") {
    auto const result = session.run_case(static_cast<int>(integer(arguments, "set")), draw(arguments, "a"),
                                         draw(arguments, "b"));
    return "\"inputs_changed\": " + std::string(result.inputs_changed ? "true" : "false") +
           ", \"guard_bytes\": " + std::to_string(result.guard_bytes);
  } else if (command == "judge") {
    return members(session.judge(draw(arguments, "a"), draw(arguments, "b"), std::stof(text(arguments, "atol")),
                                 std::stof(text(arguments, "rtol"))));
  } else if (command == "profile") {
    session.profile(draw(arguments, "a"), draw(arguments, "b"));
  } else if (command == "time" || command == "serve") {
    auto const mode = command == "time" ? cr::Session::Mode::kIsolated : cr::Session::Mode::kServer;
    return members(session.time(mode, draw(arguments, "a"), draw(arguments, "b"),
                                static_cast<uint64_t>(integer(arguments, "delay_ns"))));
  } else if (command == "batch") {
    return members(session.time_batch(static_cast<int>(integer(arguments, "calls")), draw(arguments, "a"),
                                      draw(arguments, "b"), static_cast<uint64_t>(integer(arguments, "delay_ns"))));
  } else {
    throw cr::Failure(cr::Code::kFailed, "unknown command " + command);
  }
  return "\"done\": true";
}

}  // namespace

int main(int argc, char** argv) {
  bool const reference = argc > 1 && std::string(argv[1]) == "reference";
  bool trace = false;
  std::vector<std::string> directories;
  std::string script, replies;
  int descriptor = -1;
  for (int i = 2; i < argc; ++i) {
    std::string const option = argv[i];
    if (option == "--trace") {
      trace = true;
    } else if (i + 1 < argc && option == "--libraries") {
      std::istringstream list(argv[++i]);
      for (std::string part; std::getline(list, part, ':');) directories.push_back(part);
    } else if (i + 1 < argc && option == "--answers") {
      descriptor = std::atoi(argv[++i]);
    } else if (i + 1 < argc && option == "--script") {
      script = argv[++i];
    } else if (i + 1 < argc && option == "--replies") {
      replies = argv[++i];
    } else {
      std::fprintf(stderr, "unknown option %s\n", option.c_str());
      return 2;
    }
  }
  FILE* const out = replies.empty() ? fdopen(descriptor, "w") : std::fopen(replies.c_str(), "w");
  if (out == nullptr) {
    std::fprintf(stderr, "no place to answer to\n");
    return 2;
  }
  std::ifstream file(script);
  std::istream& commands = script.empty() ? std::cin : file;
  std::unique_ptr<cr::Session> session;
  for (std::string line; std::getline(commands, line);) {
    std::istringstream words(line);
    std::string command, word;
    words >> command;
    Arguments arguments;
    while (words >> word) {
      size_t const cut = word.find('=');
      if (cut != std::string::npos) arguments[word.substr(0, cut)] = word.substr(cut + 1);
    }
    if (command == "quit") break;
    std::string body;
    bool fatal = false;
    try {
      if (session == nullptr) session = std::make_unique<cr::Session>(reference, trace, directories);
      body = answer(*session, command, arguments);
    } catch (cr::Failure const& failure) {
      body = "\"failed\": " + quoted(failure.what());
      fatal = failure.code() == cr::Code::kFatal;
    } catch (std::exception const& error) {
      body = "\"failed\": " + quoted(error.what());
      fatal = true;
    }
    std::fprintf(out, "{\"nonce\": %s, %s}\n", quoted(arguments["nonce"]).c_str(), body.c_str());
    std::fflush(out);
    if (fatal) break;
  }
  // Destructors of the session, and of whatever the candidate left behind, are not worth waiting for.
  std::fflush(nullptr);
  _exit(0);
}

#pragma once
// SPDX-License-Identifier: Apache-2.0
// A deck that is being put together from another program's configuration.

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "migrate/detail/configuration.hpp"
#include "migrate/migrate.hpp"

namespace finetune::migrate {

/// What a key of theirs becomes.
enum class Kind {
  key,       ///< our key `here`, with its value
  word,      ///< our key `here`, whose values have other names (words.hpp)
  fact,      ///< what several keys of ours depend on: Draft::fact(here)
  needless,  ///< nothing: `note` says how the thing is done here
  differs,   ///< nothing, and it would have changed the run: `note` says how
  stops,     ///< nothing that could be left out, unless its value says no: `note` says why;
             ///< `here` is the key of ours that lifts it, with a value
};

/// `name` is dotted; it stands for all keys below it that have no row of their own.
struct Row {
  std::string_view name;
  Kind kind;
  std::string_view here = "";
  std::string_view note = "";
};

/// A key of theirs with its value.
struct Fact {
  std::string name;
  Node value;
};

/// One of the data sets.
struct DataSet {
  std::string path;
  std::string format = "auto";
  std::string split = {};
  std::string subset = {};  ///< of several data sets in a folder
  double weight = 1;
  std::map<std::string, std::string> columns = {};  ///< and templates, by our key
};

class Draft {
 public:
  Draft(std::string where, std::string title, const Options& options);

  // What was found
  void remember(std::string_view fact, const std::string& name, const Node& value);
  /// The first of the facts of this name that is not empty; null if there is none.
  const Fact* fact(std::string_view name) const;
  bool is_on(std::string_view name) const;  ///< of a fact: there, and not off
  std::optional<std::int64_t> integer(std::string_view fact) const;
  std::optional<double> number(std::string_view fact) const;
  std::string text(std::string_view fact) const;  ///< "" where there is none

  // What becomes of it
  /// `value` as in TOML. The first that is set stays, but what the command line gives stays anyway.
  void set(const std::string& key, const std::string& value, const std::string& comment = "");
  void drop(const std::string& key);
  bool has(const std::string& key) const;
  bool is_given(const std::string& key) const;
  /// As in TOML; "" where it is not set.
  std::string value(const std::string& key) const;
  void note(Kind kind, const std::string& name, const std::string& note);
  void leave_empty(const std::string& name) { empty_.push_back(name); }
  void leave_unknown(const std::string& name, const Node& value);
  /// Noted instead, if the command line gives the key of ours that `lifts` ("optimizer.name=lion").
  void stop(const Node& node, const std::string& problem, const std::string& why,
            const std::string& lifts);
  void add_data(DataSet data) { data_.push_back(std::move(data)); }
  void add_validation(DataSet data) { validation_.push_back(std::move(data)); }
  void say(const std::string& line) { head_.push_back(line); }

  const std::vector<DataSet>& data() const { return data_; }
  const std::vector<DataSet>& validation() const { return validation_; }
  const Options& options() const { return options_; }
  std::int64_t ranks = 1;  ///< of the job that the file is about

  /// Facts that nothing asked for are noted. Throws: one ErrorKind::deck with all that was said to
  /// stop.
  void finish();
  std::string deck() const;

 private:
  struct Entry {
    std::string key, value, comment;
  };
  std::string where_, title_;
  const Options& options_;
  /// Whoever reads one may remember others: they stay where they are.
  std::deque<std::pair<std::string, Fact>> facts_;
  mutable std::set<std::string, std::less<>> asked_;  ///< facts that something depends on
  std::vector<Entry> entries_;
  std::vector<std::pair<std::string, std::vector<std::string>>> differs_, needless_;
  std::vector<std::string> empty_, unknown_, stops_, head_;
  std::vector<DataSet> data_, validation_;
};

}  // namespace finetune::migrate

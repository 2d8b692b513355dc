#pragma once
// SPDX-License-Identifier: Apache-2.0
// What this rank's threads are doing and did last, for the watchdog and flight records.

#include <array>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "comm/link_rates.hpp"
#include "core/clock.hpp"

namespace finetune::comm {

/// The two threads of a rank that communicate: the one that computes, and the one of the stream.
enum class Track { main, stream };

/// A name of bounded length, which is copied without memory from the heap. Longer ones are cut.
class Label {
 public:
  Label() = default;
  Label(const std::string& text) : Label(std::string_view(text)) {}
  Label(std::string_view text) { text.copy(text_.data(), text_.size() - 1); }
  std::string_view view() const { return text_.data(); }
  bool is_empty() const { return text_[0] == '\0'; }

 private:
  std::array<char, 48> text_{};
};

/// Monotonic nanoseconds; the same clock for all processes of a machine.
std::int64_t now_ns();

/// What is known about a collective when it is entered.
struct Details {
  int first_rank = 0;  ///< the lowest of its ranks, in the world: names the group on its axis
  int num_ranks = 1;
  std::int64_t bytes = 0;      ///< that this rank sends; of Communicator's, those it works on
  Label subject = {};          ///< what it is for: "layers.12"; empty: not known
  std::int64_t posted_ns = 0;  ///< when it was started; 0: when it was entered
};

/// A collective as this rank saw it.
struct Collective {
  Track track = Track::main;
  std::int64_t step = 0;    ///< optimizer step, counts from 1; 0 before the first
  std::int64_t number = 0;  ///< counts the collectives of its track, axis and group from 1
  const char* name = "";    ///< "all_gather"; lives for ever
  Label axis;
  Details details;
  std::int64_t begin_ns = 0;
  std::int64_t end_ns = 0;  ///< 0: this rank is inside it
};

/// A moment of one track.
struct Doing {
  std::int64_t step = 0;      ///< optimizer step, counts from 1; 0 before the first
  std::int64_t sequence = 0;  ///< collectives this track has entered so far
  bool is_inside = false;     ///< of the last of them
  std::string collective;     ///< its name: "all_gather"
  std::string axis;           ///< and its communicator's: "fsdp"
  double seconds = 0;         ///< since it was entered or left
  std::string work = {};      ///< what the thread computes: "backward of layers.12"; may be empty
};

/// Written by the tracks, read by the watchdog. Thread-safe. Everything here takes less than a
/// microsecond, but for `last` and `counts`, which copy, and `leave` while the process is profiled.
class Activity {
 public:
  /// Collectives that are remembered after they ended, with those that tracks are inside of.
  static constexpr std::size_t num_remembered = 1000;

  Activity();

  void set_step(std::int64_t step);
  /// One collective that was entered: several threads may be inside one of the stream's each.
  struct Entry {
    Track track = Track::main;
    std::int64_t number = 0;  ///< 0: none
  };
  [[nodiscard]] Entry enter(Track track, const char* collective, const std::string& axis,
                            const Details& details = {});
  void leave(const Entry& entry) noexcept;
  Doing look(Track track) const;

  /// What collectives are for that are started from now on.
  void set_subject(std::string_view subject);
  Label subject() const;

  /// The last collectives, newest first.
  std::vector<Collective> last() const;
  /// How many of each axis and group this rank has entered: the newest of each.
  std::vector<Collective> counts() const;

  /// Of the collectives on streams.
  LinkRates& link_rates() { return link_rates_; }

  /// Inside a collective for as long as this lives. `activity` may be null.
  class Scope {
   public:
    Scope(Activity* activity, Track track, const char* collective, const std::string& axis,
          const Details& details = {})
        : activity_(activity) {
      if (activity_ != nullptr) entry_ = activity_->enter(track, collective, axis, details);
    }
    ~Scope() {
      if (activity_ != nullptr) activity_->leave(entry_);
    }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    Activity* activity_;
    Entry entry_;
  };

  /// What the thread that computes does for as long as this lives; another may lie inside it. An
  /// error leaves it as it is: that is what records are to say of the rank that failed.
  /// `activity` may be null. `kind` lives for ever.
  class Work {
   public:
    Work(Activity* activity, const char* kind, std::string_view subject);
    ~Work();
    Work(const Work&) = delete;
    Work& operator=(const Work&) = delete;

   private:
    struct What {
      const char* kind = "";  ///< "backward"
      Label subject;          ///< "layers.12"
    };
    friend class Activity;

    Activity* activity_;
    What before_;
    int num_exceptions_;  ///< that were thrown and not caught as this began
  };

 private:
  struct Open {
    std::int64_t number = 0;  ///< of its Entry
    Collective collective;
    std::size_t slot = 0;  ///< of it, in the ring
    core::Stopwatch since;
  };
  struct State {
    std::int64_t sequence = 0;
    std::vector<Open> open;  ///< oldest first; as many as threads
    Collective last_left;
    core::Stopwatch since_last;
  };

  State& state(Track track) { return states_[static_cast<std::size_t>(track)]; }
  std::int64_t next_number(const Collective& collective);

  mutable std::mutex mutex_;
  std::int64_t step_ = 0;
  std::array<State, 2> states_;
  Label subject_;
  Work::What work_;
  std::vector<Collective> ring_;  ///< allocated once
  std::size_t num_recorded_ = 0;
  std::vector<Collective> newest_;  ///< of each track, axis and group: a handful
  LinkRates link_rates_;            ///< has a mutex of its own
};

}  // namespace finetune::comm

#pragma once
// SPDX-License-Identifier: Apache-2.0
// What comes before what on the simulated device, by its streams, its events and the waits of the
// host; and whether whoever touches memory comes after those who did before.

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

namespace finetune::simulated {

/// The stream that computes unless somebody chose another, and the one of collectives.
using Stream = int;
inline constexpr Stream default_stream = 0;
inline constexpr Stream communication_stream = 1;

/// The number of the last operation of each stream that is known to be done.
class Clock {
 public:
  std::int64_t of(Stream stream) const;
  void set(Stream stream, std::int64_t number);
  void merge(const Clock& other);
  /// Whether everything that `other` knows to be done is known here.
  bool covers(const Clock& other) const;

 private:
  std::vector<std::int64_t> last_;
};

enum class Touch { reads, writes };

/// An operation from when it is put on a stream until the call returns. Memory that is touched
/// meanwhile, by the same thread, is touched by the innermost.
class Operation {
 public:
  explicit Operation(std::string name);
  Operation(std::string name, Stream stream);
  ~Operation();
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;

  /// Bytes that it reads or writes when its turn comes. `what`: in words.
  void touches(const void* begin, std::size_t bytes, Touch touch, const std::string& what) const;
  Stream stream() const { return stream_; }
  const std::string& name() const { return *name_; }

  /// This thread's innermost; null outside of any.
  static const Operation* current();

 private:
  std::shared_ptr<const std::string> name_;
  Stream stream_;
  std::int64_t number_;
  const Operation* outer_;
};

/// A happens-before checker: vector clocks over streams and events, reads and writes by byte. Of
/// two operations of which one writes what the other touches, the later must be ordered behind the
/// earlier: on the same stream, by an event, or because the host waited. Whoever is not is a
/// finding, which ends the program with exit code 70 and both names; FINETUNE_SIMULATED_RACES=0
/// lets it go on, with the numbers that come of it.
///
/// Deterministic: it does not depend on when anything runs. For several threads of the host, which
/// are taken to be ordered among themselves.
class Order {
 public:
  static Order& here();

  /// Of an operation that is put on `stream` now.
  std::int64_t launch(Stream stream);
  void touch(const Operation& operation, const std::shared_ptr<const std::string>& name,
             std::int64_t number, const void* begin, std::size_t bytes, Touch touch,
             const std::string& what);

  /// Past when the stream has done what it holds now.
  Clock event(Stream stream) const;
  void stream_waits(Stream stream, const Clock& event);
  void host_waits(const Clock& event);
  bool host_knows(const Clock& event) const;

  /// Memory whose next owner, after it is freed, gets it on the same stream, and without a wait.
  void allocated(const void* begin, std::size_t bytes, Stream stream);
  void freed(const void* begin);

 private:
  struct Use {
    std::shared_ptr<const std::string> operation;  ///< null: nobody
    Stream stream = default_stream;
    std::int64_t number = 0;
  };
  /// Bytes with the same past.
  struct Piece {
    const char* end = nullptr;
    Use written;
    std::vector<Use> read;  ///< the last of each stream since
  };
  struct Block {
    std::size_t bytes = 0;
    Stream stream = default_stream;
  };
  using Pieces = std::map<const char*, Piece>;

  void split(const char* at);
  /// Pieces of exactly these bytes.
  template <typename F>
  void for_each(const char* begin, const char* end, const F& f);
  void forget(const char* begin, const char* end);
  bool is_before(const Use& use, Stream stream) const;
  void check(const Use& now, Touch touch, const Piece& piece, const std::string& what) const;
  Clock& clock(Stream stream);

  mutable std::mutex mutex_;
  std::vector<Clock> clocks_;  ///< by stream: what its next operation comes after
  Clock host_;
  Pieces pieces_;
  std::unordered_map<const void*, Block> blocks_;
};

/// "the communication stream".
std::string name_of(Stream stream);

/// Reports a missing wait: ends the program, or not, see Order.
void found(const std::string& problem, const std::string& why, const std::string& remedy);

}  // namespace finetune::simulated

// SPDX-License-Identifier: Apache-2.0
// A library for LD_PRELOAD that stands between a program and the disk. It touches nothing but paths
// that contain FINETUNE_SHIM_FOLDER, and does what the environment asks for:
//   FINETUNE_SHIM_FAIL=<call>:<rank>:<hit>:<EIO|ENOSPC|EINTR|EROFS|SHORT>[:<text>][,...]
//       that call (create mkdir write fsync fallocate ftruncate rename) fails at its n-th hit
//       ("3"), from then on ("3+") or always ("*"), on paths that contain `text`. SHORT writes
//       half.
//   FINETUNE_SHIM_SLOW_MS=N      a write waits for N ms first, every other call for 5 N
//   FINETUNE_SHIM_LOG=FILE       notes what a loss of power would undo (power_loss.hpp reads it)
//   FINETUNE_SHIM_NO_FSYNC=1     fsync does nothing and says that it did
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>

namespace {

constexpr int most_faults = 8;
constexpr int any = -1;
constexpr int short_write = -2;

struct Fault {
  char call[16];
  int rank;
  int hit;
  bool and_later;
  int error;
  char text[64];
  std::atomic<int> hits;
};

struct Settings {
  char folder[PATH_MAX];
  int rank = 0;
  int slow_ms = 0;
  bool has_fsync = true;
  int log = -1;
  int num_faults = 0;
  Fault faults[most_faults];
};

template <typename F>
F* real(const char* name) {
  return reinterpret_cast<F*>(::dlsym(RTLD_NEXT, name));
}

int error_of(const char* name) {
  if (strcmp(name, "EIO") == 0) return EIO;
  if (strcmp(name, "ENOSPC") == 0) return ENOSPC;
  if (strcmp(name, "EINTR") == 0) return EINTR;
  if (strcmp(name, "EROFS") == 0) return EROFS;
  if (strcmp(name, "SHORT") == 0) return short_write;
  fprintf(stderr, "FINETUNE_SHIM_FAIL: no such error: %s\n", name);
  abort();
}

void add_fault(Settings& settings, const char* text) {
  Fault& fault = settings.faults[settings.num_faults++];
  char rank[16];
  char hit[16];
  char error[16];
  const int found = sscanf(text, "%15[^:]:%15[^:]:%15[^:]:%15[^:,]:%63[^,]", fault.call, rank, hit,
                           error, fault.text);
  if (found < 4) {
    fprintf(stderr, "FINETUNE_SHIM_FAIL cannot be read: %s\n", text);
    abort();
  }
  fault.rank = strcmp(rank, "*") == 0 ? any : atoi(rank);
  fault.hit = strcmp(hit, "*") == 0 ? any : atoi(hit);
  fault.and_later = strchr(hit, '+') != nullptr;
  fault.error = error_of(error);
}

Settings* read_environment() {
  static Settings settings;
  const auto text = [](const char* name) {
    const char* value = getenv(name);
    return value == nullptr ? "" : value;
  };
  snprintf(settings.folder, sizeof settings.folder, "%s", text("FINETUNE_SHIM_FOLDER"));
  settings.rank = atoi(text("OMPI_COMM_WORLD_RANK"));
  settings.slow_ms = atoi(text("FINETUNE_SHIM_SLOW_MS"));
  settings.has_fsync = *text("FINETUNE_SHIM_NO_FSYNC") == '\0';
  const char* faults = text("FINETUNE_SHIM_FAIL");
  while (*faults != '\0' && settings.num_faults < most_faults) {
    add_fault(settings, faults);
    const char* next = strchr(faults, ',');
    faults = next == nullptr ? "" : next + 1;
  }
  if (*text("FINETUNE_SHIM_LOG") != '\0') {
    settings.log = real<int(const char*, int, ...)>("open")(
        text("FINETUNE_SHIM_LOG"), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
  }
  return &settings;
}

Settings& settings() {
  static Settings* const read = read_environment();
  return *read;
}

/// An absolute path in memory of its own.
struct Path {
  char text[2 * PATH_MAX] = "";

  explicit Path(int descriptor) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    const ssize_t n = ::readlink(link, text, PATH_MAX - 1);
    text[n < 0 ? 0 : n] = '\0';
  }
  Path(int folder, const char* name) {
    if (*name == '/') {
      snprintf(text, sizeof text, "%s", name);
      return;
    }
    if (folder == AT_FDCWD) {
      if (::getcwd(text, PATH_MAX) == nullptr) *text = '\0';
    } else {
      *this = Path(folder);
    }
    const size_t n = strlen(text);
    snprintf(text + n, sizeof text - n, "/%s", name);
  }

  bool is_ours() const {
    return *settings().folder != '\0' && strstr(text, settings().folder) != nullptr;
  }
  const char* name() const { return strrchr(text, '/') + 1; }
};

ino_t inode_of(const char* path) {
  struct stat status;
  return ::lstat(path, &status) == 0 ? status.st_ino : 0;
}

ino_t parent_inode(const Path& path) {
  Path parent(path);
  *strrchr(parent.text, '/') = '\0';
  return inode_of(parent.text);
}

/// Waits as asked. Returns the error that the call shall end with; 0 for none.
int before(const char* call, const Path& path) {
  if (!path.is_ours()) return 0;
  Settings& s = settings();
  const int ms = strcmp(call, "write") == 0 ? s.slow_ms : 5 * s.slow_ms;
  if (ms > 0) {
    const timespec time{ms / 1000, ms % 1000 * 1'000'000L};
    ::nanosleep(&time, nullptr);
  }
  for (int i = 0; i < s.num_faults; ++i) {
    Fault& fault = s.faults[i];
    if (strcmp(fault.call, call) != 0 || strstr(path.text, fault.text) == nullptr) continue;
    if (fault.rank != any && fault.rank != s.rank) continue;
    const int hit = ++fault.hits;
    if (fault.hit == any || hit == fault.hit || (fault.and_later && hit > fault.hit))
      return fault.error;
  }
  return 0;
}

void note(const Path& path, const char* format, ...) __attribute__((format(printf, 2, 3)));
void note(const Path& path, const char* format, ...) {
  if (settings().log < 0 || !path.is_ours()) return;
  const int kept = errno;
  char line[PATH_MAX];
  va_list arguments;
  va_start(arguments, format);
  const int n = vsnprintf(line, sizeof line, format, arguments);
  va_end(arguments);
  static auto* const write = real<ssize_t(int, const void*, size_t)>("write");
  if (write(settings().log, line, static_cast<size_t>(n)) != n) abort();
  errno = kept;
}

long log_bytes() {
  struct stat status;
  return settings().log >= 0 && ::fstat(settings().log, &status) == 0 ? status.st_size : 0;
}

int fail_with(int error) {
  errno = error;
  return -1;
}

int open_file(int folder, const char* name, int flags, mode_t mode) {
  static auto* const call = real<int(int, const char*, int, ...)>("openat");
  if ((flags & O_CREAT) == 0) return call(folder, name, flags, mode);
  const Path path(folder, name);
  if (const int error = before("create", path)) return fail_with(error);
  const bool is_new = path.is_ours() && inode_of(path.text) == 0;
  const int result = call(folder, name, flags, mode);
  if (result >= 0 && is_new)
    note(path, "C\t%lu\t%s\t%lu\n", parent_inode(path), path.name(), inode_of(path.text));
  return result;
}

template <typename F>
ssize_t write_file(int file, size_t count, F&& write) {
  const Path path(file);
  const int error = before("write", path);
  if (error > 0) return fail_with(error);
  if (error == short_write && count > 1) count /= 2;
  return write(path, count);
}

template <typename F>
int sync_file(int file, F* call) {
  const Path path(file);
  if (const int error = before("fsync", path)) return fail_with(error);
  if (!settings().has_fsync && path.is_ours()) return 0;
  const long covered = log_bytes();
  const int result = call(file);
  if (result == 0) note(path, "S\t%lu\t%ld\n", inode_of(path.text), covered);
  return result;
}

template <typename F>
int rename_file(const Path& from, const Path& to, unsigned flags, F&& call) {
  if (const int error = before("rename", to)) return fail_with(error);
  const bool existed = inode_of(to.text) != 0;
  const ino_t parents[2] = {parent_inode(from), parent_inode(to)};
  const int result = call();
  if (result == 0) {
    note(to, "R\t%lu\t%s\t%lu\t%s\t%d\n", parents[0], from.name(), parents[1], to.name(),
         flags != 0 ? 2 : static_cast<int>(existed));
  }
  return result;
}

template <typename F>
int make_folder(const Path& path, F&& call) {
  if (const int error = before("mkdir", path)) return fail_with(error);
  const int result = call();
  if (result == 0)
    note(path, "M\t%lu\t%s\t%lu\n", parent_inode(path), path.name(), inode_of(path.text));
  return result;
}

mode_t mode_in(va_list arguments, int flags) {
  return (flags & O_CREAT) != 0 ? va_arg(arguments, mode_t) : 0;
}

}  // namespace

// What programs call. Several names of one call: glibc has them apart, on 64 bits they are the
// same.
extern "C" {

#define OPEN(name)                                 \
  int name(const char* path, int flags, ...) {     \
    va_list arguments;                             \
    va_start(arguments, flags);                    \
    const mode_t mode = mode_in(arguments, flags); \
    va_end(arguments);                             \
    return open_file(AT_FDCWD, path, flags, mode); \
  }
#define OPENAT(name)                                       \
  int name(int folder, const char* path, int flags, ...) { \
    va_list arguments;                                     \
    va_start(arguments, flags);                            \
    const mode_t mode = mode_in(arguments, flags);         \
    va_end(arguments);                                     \
    return open_file(folder, path, flags, mode);           \
  }
OPEN(open)
OPEN(open64)
OPENAT(openat)
OPENAT(openat64)

ssize_t write(int file, const void* data, size_t count) {
  static auto* const call = real<ssize_t(int, const void*, size_t)>("write");
  return write_file(file, count, [&](const Path& path, size_t n) {
    if (path.is_ours())
      note(path, "W\t%lu\t%ld\n", inode_of(path.text), ::lseek(file, 0, SEEK_CUR));
    return call(file, data, n);
  });
}

#define PWRITE(name)                                                                 \
  ssize_t name(int file, const void* data, size_t count, off_t offset) {             \
    static auto* const call = real<ssize_t(int, const void*, size_t, off_t)>(#name); \
    return write_file(file, count, [&](const Path& path, size_t n) {                 \
      if (path.is_ours()) note(path, "W\t%lu\t%ld\n", inode_of(path.text), offset);  \
      return call(file, data, n, offset);                                            \
    });                                                                              \
  }
PWRITE(pwrite)
PWRITE(pwrite64)

#define FTRUNCATE(name)                                                       \
  int name(int file, off_t size) noexcept {                                   \
    static auto* const call = real<int(int, off_t)>(#name);                   \
    const Path path(file);                                                    \
    if (const int error = before("ftruncate", path)) return fail_with(error); \
    return call(file, size);                                                  \
  }
FTRUNCATE(ftruncate)
FTRUNCATE(ftruncate64)

#define FALLOCATE(name)                                                       \
  int name(int file, int mode, off_t offset, off_t size) {                    \
    static auto* const call = real<int(int, int, off_t, off_t)>(#name);       \
    const Path path(file);                                                    \
    if (const int error = before("fallocate", path)) return fail_with(error); \
    return call(file, mode, offset, size);                                    \
  }
FALLOCATE(fallocate)
FALLOCATE(fallocate64)

int fsync(int file) {
  static auto* const call = real<int(int)>("fsync");
  return sync_file(file, call);
}
int fdatasync(int file) {
  static auto* const call = real<int(int)>("fdatasync");
  return sync_file(file, call);
}

int rename(const char* from, const char* to) noexcept {
  static auto* const call = real<int(const char*, const char*)>("rename");
  return rename_file(Path(AT_FDCWD, from), Path(AT_FDCWD, to), 0, [&] { return call(from, to); });
}
int renameat(int from_folder, const char* from, int to_folder, const char* to) noexcept {
  static auto* const call = real<int(int, const char*, int, const char*)>("renameat");
  return rename_file(Path(from_folder, from), Path(to_folder, to), 0,
                     [&] { return call(from_folder, from, to_folder, to); });
}
int renameat2(int from_folder, const char* from, int to_folder, const char* to,
              unsigned flags) noexcept {
  static auto* const call = real<int(int, const char*, int, const char*, unsigned)>("renameat2");
  return rename_file(Path(from_folder, from), Path(to_folder, to), flags & RENAME_EXCHANGE,
                     [&] { return call(from_folder, from, to_folder, to, flags); });
}

int mkdir(const char* path, mode_t mode) noexcept {
  static auto* const call = real<int(const char*, mode_t)>("mkdir");
  return make_folder(Path(AT_FDCWD, path), [&] { return call(path, mode); });
}
int mkdirat(int folder, const char* path, mode_t mode) noexcept {
  static auto* const call = real<int(int, const char*, mode_t)>("mkdirat");
  return make_folder(Path(folder, path), [&] { return call(folder, path, mode); });
}
char* mkdtemp(char* pattern) noexcept {
  static auto* const call = real<char*(char*)>("mkdtemp");
  const Path asked(AT_FDCWD, pattern);
  if (const int error = before("mkdir", asked)) return errno = error, nullptr;
  char* const made = call(pattern);
  if (made == nullptr) return nullptr;
  const Path path(AT_FDCWD, made);
  note(path, "M\t%lu\t%s\t%lu\n", parent_inode(path), path.name(), inode_of(path.text));
  return made;
}

}  // extern "C"

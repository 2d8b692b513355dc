// SPDX-License-Identifier: Apache-2.0
#include "hdf5/skeleton.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <set>
#include <utility>

#include "core/error.hpp"
#include "hdf5/detail/memory.hpp"

namespace finetune::hdf5 {
namespace {

constexpr hsize_t alignment = alignment_bytes;
constexpr hsize_t alignment_threshold = 4 * alignment;
// What one dataset with its group and attributes needs, so that the metadata of a file lies
// together.
constexpr hsize_t metadata_bytes_per_dataset = 1024;

/// HDF5 prints every failure to stderr unless told not to; ours are reported once, as core::Error.
class QuietErrors {
 public:
  QuietErrors() {
    H5Eget_auto2(H5E_DEFAULT, &function_, &data_);
    H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
  }
  ~QuietErrors() { H5Eset_auto2(H5E_DEFAULT, function_, data_); }
  QuietErrors(const QuietErrors&) = delete;
  QuietErrors& operator=(const QuietErrors&) = delete;

 private:
  H5E_auto2_t function_ = nullptr;
  void* data_ = nullptr;
};

herr_t keep_description(unsigned, const H5E_error2_t* error, void* text) {
  if (error->desc != nullptr) *static_cast<std::string*>(text) = error->desc;
  return 1;  // the first one is enough
}

/// The innermost entry of HDF5's error stack.
std::string reason() {
  std::string text;
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, keep_description, &text);
  return text.empty() ? "HDF5 gives no reason" : text;
}

[[noreturn]] void fail_hdf5(const char* call) {
  core::fail(core::ErrorKind::io,
             {"HDF5", fmt::format("{} failed", call), reason(),
              "A file cannot be laid out; look at the free memory of this node."});
}

void check(herr_t status, const char* call) {
  if (status < 0) fail_hdf5(call);
}

/// An identifier that closes itself. `close` reports a failure, the destructor cannot.
class Id {
 public:
  using Close = herr_t (*)(hid_t);

  Id(hid_t id, Close close, const char* call) : id_(id), close_(close) {
    if (id_ < 0) fail_hdf5(call);
  }
  ~Id() {
    if (id_ >= 0) close_(id_);
  }
  Id(const Id&) = delete;
  Id& operator=(const Id&) = delete;

  hid_t get() const { return id_; }

  void close(const char* call) { check(close_(std::exchange(id_, -1)), call); }

 private:
  hid_t id_;
  Close close_;
};

/// One file being laid out.
class Writer {
 public:
  Writer(SparseImage& image, std::size_t num_datasets)
      : driver_(register_memory_driver(), H5FDunregister, "H5FDregister"),
        file_(create(image, num_datasets), H5Fclose, "H5Fcreate"),
        group_list_(H5Pcreate(H5P_GROUP_CREATE), H5Pclose, "H5Pcreate"),
        dataset_list_(H5Pcreate(H5P_DATASET_CREATE), H5Pclose, "H5Pcreate"),
        half_(half_type(), H5Tclose, "H5Tcopy") {
    // Without times the same tensors give the same bytes.
    check(H5Pset_obj_track_times(group_list_.get(), false), "H5Pset_obj_track_times");
    check(H5Pset_obj_track_times(dataset_list_.get(), false), "H5Pset_obj_track_times");
    check(H5Pset_layout(dataset_list_.get(), H5D_CONTIGUOUS), "H5Pset_layout");
    check(H5Pset_alloc_time(dataset_list_.get(), H5D_ALLOC_TIME_EARLY), "H5Pset_alloc_time");
    check(H5Pset_fill_time(dataset_list_.get(), H5D_FILL_TIME_NEVER), "H5Pset_fill_time");
  }

  void add_group(const std::string& name) {
    if (!groups_.insert(name).second) return;
    Id group(H5Gcreate2(file_.get(), name.c_str(), H5P_DEFAULT, group_list_.get(), H5P_DEFAULT),
             H5Gclose, "H5Gcreate");
    group.close("H5Gclose");
  }

  /// Returns the position of the data in the file.
  std::int64_t add_dataset(const DatasetShape& dataset) {
    const auto count = static_cast<hsize_t>(dataset.count);
    const Id space(H5Screate_simple(1, &count, nullptr), H5Sclose, "H5Screate_simple");
    Id id(H5Dcreate2(file_.get(), dataset.path.c_str(), type_of(dataset.dtype), space.get(),
                     H5P_DEFAULT, dataset_list_.get(), H5P_DEFAULT),
          H5Dclose, "H5Dcreate");
    for (const Attribute& attribute : dataset.attributes) {
      if (const auto* text = std::get_if<std::string>(&attribute.value)) {
        add_text(id.get(), attribute.name.c_str(), *text);
      } else {
        add_integers(id.get(), attribute.name.c_str(),
                     std::get<std::vector<std::int64_t>>(attribute.value));
      }
    }
    const haddr_t position = H5Dget_offset(id.get());
    if (position == HADDR_UNDEF) fail_hdf5("H5Dget_offset");
    id.close("H5Dclose");
    return static_cast<std::int64_t>(position);
  }

  void close() { file_.close("H5Fclose"); }

 private:
  hid_t create(SparseImage& image, std::size_t num_datasets) const {
    const Id access(H5Pcreate(H5P_FILE_ACCESS), H5Pclose, "H5Pcreate");
    const Id creation(H5Pcreate(H5P_FILE_CREATE), H5Pclose, "H5Pcreate");
    const hsize_t metadata = metadata_bytes_per_dataset * (num_datasets + 1);
    check(use_memory_driver(access.get(), driver_.get(), &image), "H5Pset_driver");
    // The newest format that 1.10 knows has checksums in its metadata.
    check(H5Pset_libver_bounds(access.get(), H5F_LIBVER_V110, H5F_LIBVER_V110),
          "H5Pset_libver_bounds");
    check(H5Pset_alignment(access.get(), alignment_threshold, alignment), "H5Pset_alignment");
    check(H5Pset_meta_block_size(access.get(), std::min(metadata, alignment)),
          "H5Pset_meta_block_size");
    check(H5Pset_obj_track_times(creation.get(), false), "H5Pset_obj_track_times");
    return H5Fcreate("skeleton", H5F_ACC_TRUNC, creation.get(), access.get());
  }

  static hid_t half_type() {
    // IEEE 754 binary16: sign at bit 15, five bits of exponent from 10 with bias 15.
    const hid_t type = H5Tcopy(H5T_IEEE_F32LE);
    if (type >= 0 && (H5Tset_fields(type, 15, 10, 5, 0, 10) < 0 || H5Tset_size(type, 2) < 0 ||
                      H5Tset_ebias(type, 15) < 0)) {
      H5Tclose(type);
      fail_hdf5("H5Tset_fields");
    }
    return type;
  }

  hid_t type_of(core::DType dtype) const {
    switch (dtype) {
      case core::DType::f32:
        return H5T_IEEE_F32LE;
      case core::DType::f64:
        return H5T_IEEE_F64LE;
      case core::DType::f16:
        return half_.get();
      case core::DType::bf16:  // HDF5 has no such type; the attribute "dtype" tells
        return H5T_STD_U16LE;
      case core::DType::i64:
        return H5T_STD_I64LE;
      case core::DType::i32:
        return H5T_STD_I32LE;
      case core::DType::i16:
        return H5T_STD_I16LE;
      case core::DType::i8:
        return H5T_STD_I8LE;
      default:
        return H5T_STD_U8LE;
    }
  }

  void add_text(hid_t object, const char* name, std::string_view text) const {
    const Id type(H5Tcopy(H5T_C_S1), H5Tclose, "H5Tcopy");
    check(H5Tset_size(type.get(), text.size()), "H5Tset_size");
    check(H5Tset_strpad(type.get(), H5T_STR_NULLPAD), "H5Tset_strpad");
    const Id space(H5Screate(H5S_SCALAR), H5Sclose, "H5Screate");
    add_attribute(object, name, type.get(), space.get(), type.get(), text.data());
  }

  /// A scalar's shape becomes an attribute without elements.
  void add_integers(hid_t object, const char* name, std::span<const std::int64_t> values) const {
    const hsize_t count = values.size();
    const Id space(H5Screate_simple(1, &count, nullptr), H5Sclose, "H5Screate_simple");
    add_attribute(object, name, H5T_STD_I64LE, space.get(), H5T_NATIVE_INT64, values.data());
  }

  void add_attribute(hid_t object, const char* name, hid_t stored, hid_t space, hid_t native,
                     const void* value) const {
    Id attribute(H5Acreate2(object, name, stored, space, H5P_DEFAULT, H5P_DEFAULT), H5Aclose,
                 "H5Acreate");
    static constexpr char nothing = 0;
    check(H5Awrite(attribute.get(), native, value != nullptr ? value : &nothing), "H5Awrite");
    attribute.close("H5Aclose");
  }

  Id driver_;
  Id file_;
  Id group_list_;
  Id dataset_list_;
  Id half_;
  std::set<std::string> groups_;
};

}  // namespace

Skeleton make_skeleton(std::span<const DatasetShape> datasets) {
  // On Linux the main thread's id is the process's.
  core::check(::gettid() == ::getpid(), "HDF5 is called from the main thread only");
  const QuietErrors quiet;
  SparseImage image;
  Skeleton skeleton;
  Writer writer(image, datasets.size());
  // All groups first: the metadata then lies together instead of between the data.
  for (const DatasetShape& dataset : datasets) {
    for (std::size_t at = dataset.path.find('/', 1); at != std::string::npos;
         at = dataset.path.find('/', at + 1))
      writer.add_group(dataset.path.substr(0, at));
  }
  for (const DatasetShape& dataset : datasets)
    skeleton.positions.push_back(writer.add_dataset(dataset));
  writer.close();
  skeleton.size_bytes = static_cast<std::int64_t>(image.size_bytes);
  for (auto& [position, page] : image.pages) {
    if (position >= image.size_bytes) break;  // freed again
    page.resize(std::min<std::size_t>(page.size(), image.size_bytes - position));
    skeleton.metadata.emplace(static_cast<std::int64_t>(position), std::move(page));
  }
  return skeleton;
}

}  // namespace finetune::hdf5

// SPDX-License-Identifier: Apache-2.0
#include "model/products.hpp"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <span>
#include <utility>

#include "kernels/few_rows.hpp"
#include "kernels/processor.hpp"
#include "kernels/product.hpp"

namespace finetune::model {
namespace {

template <typename T, typename Element>
kernels::Matrix<Element> matrix_of(const at::Tensor& x) {
  return {static_cast<Element*>(x.data_ptr()), x.size(0), x.size(1), x.stride(0),
          x.size(1) == 1 ? 1 : x.stride(1)};
}

template <typename T>
void widened_product(const at::Tensor& out, const at::Tensor& a, const at::Tensor& b,
                     kernels::Into into) {
  kernels::product<T>(matrix_of<T, const T>(a), matrix_of<T, const T>(b), matrix_of<T, T>(out),
                      into);
}

void widened_product(const at::Tensor& out, const at::Tensor& a, const at::Tensor& b,
                     kernels::Into into) {
  // The transpose of a product is the product of the transposes, the other way round.
  if (out.stride(1) != 1 && out.stride(0) == 1) return widened_product(out.t(), b.t(), a.t(), into);
  if (a.scalar_type() == at::kHalf) {
    widened_product<kernels::f16>(out, a, b, into);
  } else {
    widened_product<kernels::bf16>(out, a, b, into);
  }
}

}  // namespace

Path path_for(core::DType compute) {
  const bool is_narrow = compute == core::DType::bf16 || compute == core::DType::f16;
  return is_narrow && !kernels::multiplies(compute) ? Path::widened : Path::kernels;
}

bool is_widened(const at::Tensor& tensor, Path path) {
  return path == Path::widened && tensor.is_cpu() &&
         (tensor.scalar_type() == at::kBFloat16 || tensor.scalar_type() == at::kHalf);
}

namespace {

thread_local FewRows::Expected expected_rows;

/// Whether it is a product with the transpose of a matrix that lies row by row, of which rows are
/// expected that do not depend on each other.
bool is_by_texts(const at::Tensor& a, const at::Tensor& b) {
  const bool is_expected = expected_rows.of_all || expected_rows.total == a.size(0);
  return is_expected && a.size(0) > 0 && a.is_cpu() && a.is_contiguous() && b.t().is_contiguous() &&
         b.scalar_type() == a.scalar_type() &&
         (a.scalar_type() == at::kFloat || a.scalar_type() == at::kBFloat16);
}

template <typename T>
std::span<T> elements(const at::Tensor& x) {
  return {static_cast<T*>(x.data_ptr()), static_cast<std::size_t>(x.numel())};
}

/// Into `out`, which lies row by row.
void few_rows_product(const at::Tensor& out, const at::Tensor& a, const at::Tensor& b) {
  const auto compute = [&]<typename T>() {
    kernels::few_rows_product<T>(elements<const T>(a), elements<const T>(b), elements<T>(out),
                                 a.size(0), b.size(1), a.size(1));
  };
  if (a.scalar_type() == at::kFloat)
    compute.template operator()<float>();
  else
    compute.template operator()<kernels::bf16>();
}

/// Into `out`, however many rows there are.
void plain_product(at::Tensor& out, const at::Tensor& a, const at::Tensor& b, Path path) {
  if (is_widened(a, path))
    widened_product(out, a, b, kernels::Into::fresh);
  else
    at::mm_out(out, a, b);
}

/// Each text's rows as if it were alone.
void product_by_texts(at::Tensor& out, const at::Tensor& a, const at::Tensor& b, Path path) {
  constexpr std::int64_t most = kernels::most_few_rows;
  const auto few = [&](std::int64_t begin, std::int64_t end) {
    for (; begin < end; begin += most) {
      const std::int64_t count = std::min(most, end - begin);
      few_rows_product(out.narrow(0, begin, count), a.narrow(0, begin, count), b);
    }
  };
  if (expected_rows.of_all) return few(0, a.size(0));
  std::int64_t begin = 0, end = 0;  // of short texts side by side
  for (const std::int64_t rows : expected_rows.of_texts) {
    if (rows > most) {
      few(begin, end);
      at::Tensor of_text = out.narrow(0, end, rows);
      plain_product(of_text, a.narrow(0, end, rows), b, path);
      begin = end + rows;
    }
    end += rows;
  }
  few(begin, end);
}

}  // namespace

FewRows::FewRows()
    : before_(std::exchange(expected_rows, {.of_all = true, .of_texts = {}, .total = 0})) {}
FewRows::FewRows(std::vector<std::int64_t> of_texts) : before_(expected_rows) {
  const std::int64_t total = std::accumulate(of_texts.begin(), of_texts.end(), std::int64_t{0});
  expected_rows = {.of_all = false, .of_texts = std::move(of_texts), .total = total};
}
FewRows::~FewRows() {
  expected_rows = std::move(before_);
}

bool expects_few_rows() {
  return expected_rows.of_all || expected_rows.total > 0;
}

at::Tensor product(const at::Tensor& a, const at::Tensor& b, Path path) {
  if (!is_by_texts(a, b) && !is_widened(a, path)) return at::mm(a, b);
  at::Tensor out = at::empty({a.size(0), b.size(1)}, a.options());
  product_out(out, a, b, path);
  return out;
}

void product_out(at::Tensor& out, const at::Tensor& a, const at::Tensor& b, Path path) {
  if (out.is_contiguous() && is_by_texts(a, b))
    product_by_texts(out, a, b, path);
  else
    plain_product(out, a, b, path);
}

void product_add(at::Tensor& out, const at::Tensor& a, const at::Tensor& b, Path path) {
  if (is_widened(a, path)) {
    widened_product(out, a, b, kernels::Into::sum);
  } else {
    out.addmm_(a, b);
  }
}

}  // namespace finetune::model

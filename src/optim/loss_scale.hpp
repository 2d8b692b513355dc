#pragma once
#include <cstdint>
namespace finetune::optim {
class LossScale {
 public:
  double scale() const { return scale_; }
  std::int64_t skipped() const { return skipped_; }
  void update(bool overflowed) {
    if (overflowed) {
      scale_ /= 2;
      ++skipped_;
    }
  }

 private:
  double scale_ = 65536;
  std::int64_t skipped_ = 0;
};
}  // namespace finetune::optim

// The optimizers' operations, once, for any Exec.
#pragma once

#include <utility>

#include "core/check.h"
#include "device/exec.h"
#include "optim/update_ops.h"
#include "optim/update_unit.h"
#include "precision/dispatch.h"

namespace mpt {

// Sum of squares, in FP64, of a run of units.
template <class T>
struct SquareSum {
  static constexpr int64_t kUnitsPerPiece = 128;

  const T* data;
  int64_t stride;
  UnitGrid grid;
  double* partial;

  template <class G>
  MPT_HD void operator()(G group, int64_t piece) const {
    const int64_t end = min_of((piece + 1) * kUnitsPerPiece, grid.units());
    double total = 0.0;
    for (int64_t unit = piece * kUnitsPerPiece; unit < end; ++unit) {
      const UnitSpan span = grid.span(unit);
      const T* x = data + span.row * stride + span.col;
      total += group.sum(span.count, [=](int64_t i) {
        const double value = to_float(x[i]);
        return value * value;
      });
    }
    if (group.lane() == 0) partial[piece] = total;
  }
};

template <Exec E>
class UpdateOpsOn : public UpdateOps {
 public:
  explicit UpdateOpsOn(E exec) : exec_(exec) {}

  void update(const UpdateCall& call) override {
    std::visit(
        [&]<class Rule>(const Rule& rule) {
          check(call.states.size() == Rule::kStates.size(), "update with {} states, the rule has {}",
                call.states.size(), Rule::kStates.size());
          run(rule, call);
        },
        call.rule);
  }

  void sum_of_squares(const Tensor& tensor, const Tensor& partial) override {
    dispatch(tensor.dtype, [&]<class T>(T) {
      exec_.rows(
          square_sums(tensor),
          SquareSum<T>{tensor.as<T>(), tensor.stride, {tensor.rows, tensor.cols}, partial.as<double>()});
    });
  }

 protected:
  template <class Rule>
  void run(const Rule& rule, const UpdateCall& call) {
    const UnitGrid grid{call.weights.rows, call.weights.cols};
    for (const Tensor& state : call.states) check_shape(grid, state);
    check_shape(grid, call.gradient);
    UpdateUnit<Rule, ElementCodec> unit{.rule = rule,
                                        .grid = grid,
                                        .weights = ElementCodec(call.weights.codes),
                                        .states = {},
                                        .gradient = ElementCodec(call.gradient),
                                        .grad_scale = call.grad_scale,
                                        .weight_dither = {},
                                        .state_dither = {}};
    for (size_t i = 0; i < call.states.size(); ++i) unit.states[i] = ElementCodec(call.states[i]);
    exec_.units(grid.units(), unit);
  }

  static void check_shape(const UnitGrid& grid, const Tensor& t) {
    check(t.rows == grid.rows && t.cols == grid.cols, "update of [{},{}] with a [{},{}]", grid.rows,
          grid.cols, t.rows, t.cols);
  }

  E exec_;
};

}  // namespace mpt

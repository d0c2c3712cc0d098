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
  static constexpr int64_t kUnitsPerPiece = 256;

  const T* data;
  UnitGrid grid;
  double* partial;

  template <class G>
  MPT_HD void operator()(G group, int64_t piece) const {
    const int64_t end = min_of((piece + 1) * kUnitsPerPiece, grid.units());
    double total = 0.0;
    for (int64_t unit = piece * kUnitsPerPiece; unit < end; ++unit) {
      const UnitSpan span = grid.span(unit);
      const T* x = data + span.offset;
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
          dispatch(call.weights.dtype, [&]<class W>(W) {
            dispatch(call.states.front().dtype, [&]<class S>(S) {
              dispatch(call.gradient.dtype, [&]<class G>(G) { run<W, S, G>(rule, call); });
            });
          });
        },
        call.rule);
  }

  void sum_of_squares(const Tensor& tensor, const Tensor& partial) override {
    dispatch(tensor.dtype, [&]<class T>(T) {
      exec_.rows(
          square_sums(tensor),
          SquareSum<T>{tensor.as<T>(), {tensor.rows, tensor.cols, tensor.stride}, partial.as<double>()});
    });
  }

 protected:
  template <class W, class S, class G, class Rule>
  void run(const Rule& rule, const UpdateCall& call) {
    using Unit = UpdateUnit<Rule, ElementCodec<W>, ElementCodec<S>, ElementCodec<const G>>;
    const UnitGrid grid{call.weights.rows, call.weights.cols, call.weights.stride};
    for (const Tensor& state : call.states) check_view(grid, state, call.states.front().dtype);
    check_view(grid, call.gradient, call.gradient.dtype);
    const auto unit = [&]<size_t... I>(std::index_sequence<I...>) {
      return Unit{rule,
                  grid,
                  {call.weights.as<W>()},
                  {ElementCodec<S>{call.states[I].template as<S>()}...},
                  {call.gradient.as<const G>()},
                  call.grad_scale};
    }
    (std::make_index_sequence<Rule::kStates.size()>{});
    exec_.units(grid.units(), unit);
  }

  static void check_view(const UnitGrid& grid, const Tensor& t, DType dtype) {
    check(t.rows == grid.rows && t.cols == grid.cols && t.stride == grid.stride && t.dtype == dtype,
          "update of [{},{}] stride {} with a {} [{},{}] stride {}, expected {}", grid.rows, grid.cols,
          grid.stride, name_of(t.dtype), t.rows, t.cols, t.stride, name_of(dtype));
  }

  E exec_;
};

}  // namespace mpt

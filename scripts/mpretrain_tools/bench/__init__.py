"""Measures the program, on the CPU and a GPU, alone and beside others; docs/benchmarks/README.md
says what is measured.

report, growth              all figures of docs/benchmarks/cpu.md; how cost grows with every size
competitors                 training steps of this program and of others, in turn
programs                    training steps of several builds of this program, in turn
pytorch_step, torch_gpu_step   such steps in PyTorch, on the CPU and on a GPU
gpu_check, gpu_check_report   what scripts/gpu_check.sh measures, and the page of it
gpu_model, step_model       the page of how long a step on a GPU is predicted to take
sitting                     units of work within a budget of time, continued from call to call
child, disturbance          runs a program; whether others used the machine meanwhile
machine, shapes             what was measured on; the models that are measured
parts, goals, ratios, spread, page   what report.py consists of
"""

NAMES = (
    "report",
    "growth",
    "programs",
    "pytorch_step",
    "torch_gpu_step",
    "gpu_check",
    "gpu_check_report",
    "gpu_model",
)

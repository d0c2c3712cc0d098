#!/usr/bin/env python3
"""Tests of the table of GPU kernels: what is read from ptxas and nvdisasm, and, where there is a
build with CUDA (MPT_CUDA_BUILD), that its kernels keep to their budgets and the committed table is
theirs.

tests/scripts/gpu_kernels_test.py [CLASS[.TEST] ...]
"""

import os
import pathlib
import re
import unittest
import unittest.mock
from collections import Counter

from mpretrain_tools.documentation import gpu_kernels, kernel_code, ptxas_reports
from mpretrain_tools.documentation.kernel_budgets import BUDGETS, SURVEY, Budget, family_of

REPORT = """\
ptxas info    : 24 bytes gmem
ptxas info    : Compiling entry function '_Z1aPf' for 'sm_80'
ptxas info    : Function properties for _Z1aPf
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 40 registers, used 0 barriers, 368 bytes cmem[0]
ptxas info    : Compiling entry function '_Z1aPf' for 'sm_90a'
ptxas info    : Function properties for _Z1aPf
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 42 registers, used 1 barriers, 4096 bytes smem
ptxas info    : Compiling entry function '_Z1bPf' for 'sm_90a'
ptxas info    : Function properties for _Z1bPf
    64 bytes stack frame, 12 bytes spill stores, 16 bytes spill loads
ptxas info    : Function properties for __internal_trig_reduction
    32 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 128 registers, used 0 barriers, 96 bytes cumulative stack size
"""

LISTING = """\
	.section	.text._Z1aPf,"ax",@progbits
        /*0160*/                   LDG.E.128 R4, desc[UR8][R4.64] ;
        /*0170*/                   LDG.E.U16.CONSTANT R0, desc[UR8][R6.64+0xc] ;
        /*0178*/                   LD.E.64 R0, desc[UR8][R6.64] ;
        /*0180*/                   STG.E.64 desc[UR8][R6.64], R2 ;
        /*0190*/                   STG.E desc[UR8][R6.64], R2 ;
        /*2aa0*/     CALL.REL.NOINC `($__internal_2_$__cuda_sm3x_div_rn_noftz_f32_slowpath) ;
        /*2ab0*/     CALL.REL.NOINC `($__internal_3_$__cuda_sm20_rcp_rn_f32_slowpath) ;
        /*2c20*/     CALL.REL.NOINC `($__internal_1_$__cuda_sm20_sqrt_rn_f32_slowpath) ;
        /*2c30*/     CALL.REL.NOINC `($__internal_0_$__cuda_sm20_div_s64) ;
	.section	.nv.info._Z1aPf,"",@"SHT_CUDA_INFO"
        LDG.E.128 in no code
	.section	.text._Z1bPf,"ax",@progbits
        /*0160*/                   EXIT ;
"""


class Reports(unittest.TestCase):
    def test_kernels_of_the_architecture(self):
        a, b = ptxas_reports.read(REPORT, "sm_90a")
        self.assertEqual((a.symbol, a.registers, a.shared, a.outside), ("_Z1aPf", 42, 4096, 0))
        self.assertTrue(a.in_registers)
        self.assertEqual((b.symbol, b.registers, b.shared), ("_Z1bPf", 128, 0))
        self.assertFalse(b.in_registers)
        self.assertEqual(b.outside, 64 + 12 + 16 + 32)  # with what it calls
        self.assertEqual([k.registers for k in ptxas_reports.read(REPORT, "sm_80")], [40])
        self.assertEqual(ptxas_reports.read("", "sm_80"), [])

    def test_a_build_without_reports_is_named(self):
        nowhere = pathlib.Path("/nonexistent")
        with self.assertRaisesRegex(ptxas_reports.BadReport, "/nonexistent has no reports"):
            ptxas_reports.kernels_of(nowhere, "sm_90a")


class MachineCode(unittest.TestCase):
    def test_accesses_and_slow_paths(self):
        codes = kernel_code.read(LISTING.splitlines())
        self.assertEqual(codes.keys(), {"_Z1aPf", "_Z1bPf"})
        a = codes["_Z1aPf"]
        self.assertEqual(a.loads, Counter({128: 1, 64: 1, 16: 1}))
        self.assertEqual(a.stores, Counter({64: 1, 32: 1}))
        self.assertEqual((a.divisions, a.roots), (2, 1))  # none of integers
        self.assertEqual(codes["_Z1bPf"], kernel_code.Code())

    def test_missing_tools_are_named(self):
        with self.assertRaisesRegex(kernel_code.MissingTools, "cuobjdump is missing: pip install"):
            kernel_code.Tools.found(pathlib.Path("/nonexistent"))


class Families(unittest.TestCase):
    def test_names_share_a_family(self):
        update = "mpt::TensorUpdate<mpt::MPlusAdam::Step<mpt::ScaleDecay>, mpt::Nvfp4Codec>"
        for name, family in {
            "void mpt::norm_forward_kernel<float, mpt::NoStore, 8, 4>(int)": "norm_forward_kernel",
            "mpt::(anonymous namespace)::roll_kernel(float*)": "roll_kernel",
            "void mpt::elements_kernel<mpt::Widen>(mpt::Widen, long)": "Widen",
            "void mpt::groups_kernel<mpt::Rope<float> >(mpt::Rope<float>, long)": "Rope",
            f"void mpt::groups_kernel<mpt::TensorTable<{update} > >(int)": (
                "TensorUpdate, MPlusAdam"
            ),
            f"void mpt::groups_kernel<mpt::NextMaxima<{update} > >(int)": "NextMaxima",
            f"void mpt::groups_kernel<mpt::CountUpdates<{update} > >(int)": SURVEY,
        }.items():
            self.assertEqual(family_of(name), family, name)


def kernel(registers=32, outside=0):
    return ptxas_reports.Kernel("_Z1a", registers, outside=outside, name="a()")


class Faults(unittest.TestCase):
    """Each way to break a budget is said."""

    FAMILY = "Rope"

    def faults(self, *kernels):
        others = {family: [] for family in BUDGETS}
        return list(gpu_kernels.resource_faults({**others, self.FAMILY: kernels}))

    def test_registers_and_spills(self):
        most = BUDGETS[self.FAMILY].registers
        self.assertEqual(self.faults(kernel(most)), [])
        self.assertEqual(
            self.faults(kernel(most + 1)), [f"a(): {most + 1} registers, budget {most}"]
        )
        self.assertEqual(self.faults(kernel(outside=8)), ["a(): 8 bytes of stack and spills"])

    def test_a_family_without_budget_and_a_budget_without_family(self):
        found = {family: [] for family in BUDGETS if family != self.FAMILY}
        faults = list(gpu_kernels.resource_faults({**found, "NewKernel": [kernel()]}))
        self.assertEqual(len(faults), 2)
        self.assertIn("NewKernel: no budget", faults[0])
        self.assertIn(f"{self.FAMILY}: has a budget, but no kernel", faults[1])

    def test_loads_and_divisions(self):
        with unittest.mock.patch.dict(BUDGETS, {"Rope": Budget(40, load=128, divisions=1)}):
            for code, said in (
                (kernel_code.Code(loads=Counter({64: 1})), "a(): no load of 128 bits"),
                (
                    kernel_code.Code(loads=Counter({128: 1}), divisions=2),
                    "a(): 2 divisions, budget 1",
                ),
                (kernel_code.Code(loads=Counter({128: 1}), divisions=1), None),
            ):
                faults = list(gpu_kernels.code_faults({"Rope": [kernel()]}, {"_Z1a": code}))
                self.assertEqual(faults, [said] if said else [])

    def test_the_table_is_compared_in_what_every_nvcc_fills_alike(self):
        row = list(gpu_kernels.shown_table()[2].strip("| ").split(" | "))
        registers, instances = gpu_kernels.HEAD.index("registers"), 1
        other = [*row[:registers], "7", *row[registers + 1 :]]
        shown = gpu_kernels.shown_table()
        self.assertEqual(list(gpu_kernels.table_faults(shown)), [])
        changed = ["| " + " | ".join(other) + " |", *shown[3:]]
        self.assertEqual(list(gpu_kernels.table_faults(shown[:2] + changed)), [])
        other[instances] = "99"
        changed[0] = "| " + " | ".join(other) + " |"
        self.assertEqual(len(list(gpu_kernels.table_faults(shown[:2] + changed))), 2)


def architectures_of(build):
    """As CMake was given them: "90a-real;100a-real"."""
    cache = (build / "CMakeCache.txt").read_text(encoding="utf-8")
    return re.search(r"^CMAKE_CUDA_ARCHITECTURES:\w+=(.*)$", cache, re.M)[1]


@unittest.skipUnless("MPT_CUDA_BUILD" in os.environ, "no build with CUDA (MPT_CUDA_BUILD)")
class Built(unittest.TestCase):
    """The kernels of a build."""

    ARCHITECTURE = "sm_90a"

    @classmethod
    def setUpClass(cls):
        cls.build = pathlib.Path(os.environ["MPT_CUDA_BUILD"])
        if "90a" not in architectures_of(cls.build):
            raise unittest.SkipTest(f"{cls.build} is not for {cls.ARCHITECTURE}")
        kernels = ptxas_reports.kernels_of(cls.build, cls.ARCHITECTURE)
        cls.found = gpu_kernels.families(ptxas_reports.demangled(kernels))

    def test_registers_stack_and_spills(self):
        self.assertEqual(list(gpu_kernels.resource_faults(self.found)), [])

    def test_committed_table(self):
        lines = gpu_kernels.markdown.table(
            gpu_kernels.HEAD, (gpu_kernels.row(name, own, {}) for name, own in self.found.items())
        )
        self.assertEqual(list(gpu_kernels.table_faults(lines)), [])

    def test_loads_and_slow_divisions(self):
        try:
            tools = kernel_code.Tools.found()
        except kernel_code.MissingTools as missing:
            self.skipTest(str(missing))
        codes = tools.codes_of(self.build, self.ARCHITECTURE)
        self.assertEqual(list(gpu_kernels.code_faults(self.found, codes)), [])


if __name__ == "__main__":
    unittest.main()

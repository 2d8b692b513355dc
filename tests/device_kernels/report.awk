# SPDX-License-Identifier: Apache-2.0
# What ptxas -v said of kernels, demangled, to lines "file kernel registers stack spills". -v file=NAME.
# Kokkos' own kernels are left out.
function finish() {
  if (kernel != "") printf "%s %s %d %d %d\n", file, kernel, registers, stack, spills
  kernel = ""
}
/Compiling entry function/ {
  finish()
  registers = stack = spills = 0
  if (!match($0, /finetune::kernels::/)) next
  kernel = $0
  sub(/.*Compiling entry function '/, "", kernel)
  if (sub(/.*cuda_parallel_launch_[a-z_]*<Kokkos::Impl::ParallelFor</, "", kernel) || 1)
    sub(/, Kokkos::(RangePolicy|TeamPolicy)<.*/, "", kernel)
  gsub(/finetune::kernels::|\(anonymous namespace\)::/, "", kernel)
  gsub(/unsigned short/, "bf16", kernel)
  gsub(/ /, "", kernel)
}
/bytes stack frame/ {
  if ($1 > stack) stack = $1
  spills += $5
}
/Used [0-9]+ registers/ { registers = $0; sub(/.*Used /, "", registers); registers = registers + 0 }
END { finish() }

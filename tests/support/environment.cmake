# SPDX-License-Identifier: Apache-2.0
# ctest includes this file and hands its own environment to every test. Who sets a variable knows better.
function(finetune_set_environment name value)
  if(NOT DEFINED ENV{${name}})
    set(ENV{${name}} "${value}")
  endif()
endfunction()
# Threads that wait for each other sleep. By default they spin for milliseconds, which the tests beside them lose.
finetune_set_environment(OMP_WAIT_POLICY passive)
# What Open MPI chooses on one node in the end. Asked itself, it first waits 0.2 s for devices of networks. install/run has
# its own choice. That a program of one rank starts no daemon (ess_singleton_isolated) saves as much again, but all of them
# have one folder then, which one removes while another makes it.
finetune_set_environment(OMPI_MCA_pml ob1)

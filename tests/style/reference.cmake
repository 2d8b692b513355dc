# SPDX-License-Identifier: Apache-2.0
# inputs/reference.toml is what the program says of itself.
#   cmake -DPROGRAM=build/finetune -DROOT=. -P reference.cmake
execute_process(COMMAND ${PROGRAM} --reference OUTPUT_VARIABLE printed COMMAND_ERROR_IS_FATAL ANY)
file(READ ${ROOT}/inputs/reference.toml kept)
if(NOT printed STREQUAL kept)
  message(FATAL_ERROR "inputs/reference.toml: is not what finetune --reference prints. "
    "Say: build/finetune --reference > inputs/reference.toml")
endif()

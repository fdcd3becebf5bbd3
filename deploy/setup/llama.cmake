# What a CPU server needs of llama.cpp, and one flag without which it may not run. CMake includes this file right
# after the project() line of llama-cpp-python (CMAKE_PROJECT_llama_cpp_INCLUDE), when it knows the compiler.

# GCC's dead store elimination drops the stores that fill the AMX tile configuration: on a CPU with AMX the first
# decode then dies of SIGILL. Clang neither has the fault nor knows the flag.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64|amd64")
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-fno-dse>)
endif()

# libllama uses neither the helpers of llama.cpp's own programs nor the multimodal library; together they are most
# of the compile time. llama-cpp-python forces LLAMA_BUILD_COMMON to ON in the cache; a plain variable hides that.
set(LLAMA_BUILD_COMMON OFF)
set(LLAVA_BUILD OFF)

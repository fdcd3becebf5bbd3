"""llama.cpp through llama-cpp-python's low-level bindings: model, vocabulary, samplers and the step engine."""

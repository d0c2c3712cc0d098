// Training steps of llm.c's CPU trainer, one after another; prints the median tokens per second.
//
//   llmc_step CHECKPOINT BATCH LENGTH STEPS
// Built by competitors.py against a checkout of llm.c that the user has: its train_gpt2.c is included as it is, without
// its main, whose batch, length and files are fixed in the source. The model is GPT-2, not LLaMA.
#define TESTING
#include "train_gpt2.c"

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int ascending(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}

static double step_rate(GPT2* model, int* tokens, int batch, int length, int step) {
  const double start = now();
  gpt2_forward(model, tokens, tokens + 1, batch, length);
  gpt2_zero_grad(model);
  gpt2_backward(model);
  gpt2_update(model, 1e-3f, 0.9f, 0.98f, 1e-8f, 0.1f, step + 1);
  return batch * length / (now() - start);
}

int main(int argc, char** argv) {
  if (argc != 5) {
    fprintf(stderr, "usage: llmc_step CHECKPOINT BATCH LENGTH STEPS\n");
    return 1;
  }
  const int batch = atoi(argv[2]), length = atoi(argv[3]), steps = atoi(argv[4]);
  GPT2 model;
  gpt2_build_from_checkpoint(&model, argv[1]);
  const int count = batch * length + 1;
  int* tokens = malloc(sizeof(int) * (size_t)count);
  for (int i = 0; i < count; ++i)
    tokens[i] = (int)((unsigned)i * 40503u % (unsigned)model.config.vocab_size);
  double* rates = malloc(sizeof(double) * (size_t)steps);
  step_rate(&model, tokens, batch, length, 0);  // touches all memory for the first time
  for (int i = 0; i < steps; ++i) rates[i] = step_rate(&model, tokens, batch, length, i + 1);
  qsort(rates, (size_t)steps, sizeof(double), ascending);
  printf("%.1f\n", rates[steps / 2]);
  return 0;
}

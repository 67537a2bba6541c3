// standin_plan FILE: writes a plan that the stand-ins execute and the examples can bind.
#include <cstdio>

#include "tests/standin/plans.h"

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  attn::standin::PlanOptions options;
  options.params = 0;
  const attn::Status status = attn::plan::save(attn::standin::make_plan(options), argv[1]);
  if (status.ok()) return 0;
  std::fprintf(stderr, "%s\n", status.error().to_text().c_str());
  return 1;
}

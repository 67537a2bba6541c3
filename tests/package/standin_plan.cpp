// standin_plan FILE [scheduled]: writes a plan that the stand-ins execute and the examples can
// bind, or one that takes a schedule.
#include <cstdio>
#include <string_view>

#include "tests/standin/plans.h"
#include "tests/unit/runtime/plan/sample_plans.h"

int main(int argc, char** argv) {
  if (argc < 2 || argc > 3 || (argc == 3 && std::string_view(argv[2]) != "scheduled")) return 2;
  attn::standin::PlanOptions options;
  options.params = 0;
  const attn::plan::Plan plan =
      argc == 3 ? attn::standin::plan_of(attn::plan::testing::scheduled_program(), options)
                : attn::standin::make_plan(options);
  const attn::Status status = attn::plan::save(plan, argv[1]);
  if (status.ok()) return 0;
  std::fprintf(stderr, "%s\n", status.error().to_text().c_str());
  return 1;
}

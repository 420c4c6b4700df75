// Three stages, each of which begins when the one before it has finished. The second fails while the variable
// `strict` says so; mended with `--var strict=false`, what waits for it goes on by itself.
//
//   borgctl apply configs/apps/pipeline.jsonnet
//   borgctl app run pipeline
local b = import 'borgish.libsonnet';

local small = { resources: { cpu: '50m', ram: '32MiB' } };

local stages = b.pipeline([
  b.stage('extract', ['sh', '-c', 'echo 100 rows read']),
  b.batch('transform', ['sh', '-c', 'if {{var.strict}}; then echo row 17 has no date; exit 1; fi; echo 99 rows kept'], attempts=1),
  b.stage('load', ['sh', '-c', 'echo 99 rows written']),
]);

local app = b.app('pipeline', [stage + small for stage in stages], labels={ team: 'data' });

[app[0] { vars: { strict: { type: 'bool', default: true, help: 'refuse rows without a date' } } }] + app[1:]

// What job files written in Jsonnet share. Import it as 'borgish.libsonnet'; every function returns a document,
// or a list of documents, to which fields are added as to any object: service('web', ['serve']) + {tasks: 3}.
{
  // A job that is to keep running.
  service(name, run):: {
    name: name,
    run: run,
    restart: { policy: 'always' },
  },

  // A job that runs to completion, and is tried again when it fails.
  batch(name, run, attempts=3):: {
    name: name,
    run: run,
    restart: { policy: 'on_failure', attempts: attempts },
  },

  // A batch job that begins when the jobs in `after`, by name, have finished.
  stage(name, run, after=[]):: self.batch(name, run) + (
    if after == [] then {} else { after: [{ job: job, until: 'finished' } for job in after] }
  ),

  // Stages, each of which begins when the one before it has finished.
  pipeline(stages):: [
    stages[i] + (
      if i == 0 then {} else { after: [{ job: stages[i - 1].name, until: 'finished' }] }
    )
    for i in std.range(0, std.length(stages) - 1)
  ],

  // An application with its jobs: the list of all documents.
  app(name, jobs, labels={}):: [
    { kind: 'app', name: name } + (if labels == {} then {} else { labels: labels }),
  ] + jobs,
}

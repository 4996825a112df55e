"""The study as a workflow: what is trained, on what, and how it is measured, stands in the study file (config/)."""

from pathlib import Path

from snakemake.exceptions import WorkflowError

from internalize import forkserver
from internalize.costs.terms import terms_of
from internalize.errors import UserError
from internalize.workflow import Plan, prepare_environment

repository = Path(str(workflow.current_basedir))  # also right when another Snakefile includes this one
prepare_environment(repository)
try:
    plan = Plan.from_config(config, repository, workflow.overwrite_configfiles)
    terms_of(plan).export()
except UserError as error:
    raise WorkflowError(str(error)) from None


if plan.placing.prefix():  # on a cluster, jobs start through a launcher (profiles/README.md)
    shell.prefix(plan.placing.prefix())


onsuccess:
    plan.log("finished")


onerror:
    plan.log("failed")


wildcard_constraints:
    **plan.names(),


localrules:
    all,


onstart:
    from internalize.costs.verdict import check_budget

    try:
        check_budget(plan)
    except UserError as error:
        raise WorkflowError(str(error)) from None
    plan.log("launched")
    if plan.placing.site is None:  # jobs run on this machine
        forkserver.start()
    logger.info("", extra={"study": (config, repository, workflow.overwrite_configfiles)})  # for the bars


rule all:
    default_target: True
    input:
        plan.targets(),


include: "rules/fetch.smk"
include: "rules/knowledge.smk"
include: "rules/base.smk"
include: "rules/harvest.smk"
include: "rules/rows.smk"
include: "rules/numerics.smk"
include: "rules/arms.smk"
include: "rules/evals.smk"
include: "rules/convert.smk"
include: "rules/report.smk"
include: "rules/archive.smk"

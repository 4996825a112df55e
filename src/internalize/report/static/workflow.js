// Cost, the graph of receipts with their states, registry, checkpoints, archive.
"use strict";

(() => {
  const {make, data, section, about, bytes, seconds, number} = page;
  const {table, open, receipt} = tables;

  // Cost

  function cost() {
    const all = page.rows("costs");
    const {columns} = data.tables.costs;
    const show = (x) => (x === null ? "-" : typeof x === "number" ? number(x, Number.isInteger(x) ? 0 : 1) : x);
    section("cost").append(table(columns, all.map((row) => make("tr", {}, columns.map((column) => tables.cell("costs", row, column, show(row[column])))))),
      make("h3", {}, "The longest way through"), about("What would have to be faster for the study to end sooner, whatever the number of processors."),
      table(["what", "wall", "until then"], longest()));
  }

  /** The critical path, runs of steps of one arm and seed as one line. */
  function longest() {
    const parts = [];
    for (const at of data.critical) {
      const node = data.nodes[at];
      const run = node.stage === "step" ? node.label.split(".").slice(0, 3).join(".") : node.label;
      const before = parts.at(-1);
      if (before?.run === run) Object.assign(before, {last: node.label, count: before.count + 1, wall: before.wall + (node.wall ?? 0)});
      else parts.push({run, first: node.label, last: node.label, count: 1, wall: node.wall ?? 0});
    }
    let sum = 0;
    return parts.map((part) => {
      sum += part.wall;
      const name = part.count > 1 ? `${part.first} … ${part.last.split(".").at(-1)} (${part.count} steps)` : part.first;
      return make("tr", {}, make("td", {}, name), make("td", {}, seconds(part.wall)), make("td", {}, seconds(sum)));
    });
  }

  // The graph

  const show = (at) => open(make("h3", {}, data.nodes[at].label), receipt(at));
  const LETTER = {sft: "S", rl: "R", joint: "J"};

  function graph() {
    const parent = section("workflow");
    const by = {};
    data.nodes.forEach((node, at) => (by[node.stage] ??= []).push(at));
    const order = ["fetch_game", "fetch_base", "knowledge", "base", "gate", "numerics", "harvest", "rows", "step", "evals", "convert", "report", "archive"];
    const stages = [...order.filter((stage) => by[stage]), ...Object.keys(by).filter((stage) => !order.includes(stage))];
    const planned = data.study.arms.reduce((sum, arm) => sum + arm.phases.length * arm.seeds.length, 0);
    const flow = stages.flatMap((stage, i) => {
      const done = by[stage].filter((at) => data.nodes[at].status === "done").length;
      const count = stage === "step" ? planned : by[stage].length;
      const wall = by[stage].reduce((sum, at) => sum + (data.nodes[at].wall ?? 0), 0);
      const box = make("button", {type: "button", title: `${seconds(wall)} in all`, onclick: () => open(make("h3", {}, stage), ...by[stage].slice(0, 60).map(receipt))},
        make("b", {}, stage), ` ${done}/${count} done`);
      return i ? ["→", box] : [box];
    });
    parent.append(about("Each box is a stage, each cell below a step of an arm and seed; a click shows its receipt and what it was made from."),
      make("div", {class: "flow"}, flow), about("S: SFT step, R: RL step, J: joint step. ✕: stopped by the collapse guard, –: passed through after it. Dashed: not run. "
        + "Double line below: its checkpoint was pruned."), make("div", {class: "lanes"}, data.study.arms.flatMap(lanes)));
  }

  function lanes(arm) {
    const where = {};
    data.nodes.forEach((node, at) => {
      if (["step", "evals"].includes(node.stage)) where[node.label] = at;
    });
    return arm.seeds.map((seed) => make("div", {class: "lane"}, make("span", {class: "name", title: `${arm.name}, seed ${seed}`}, `${arm.name} ${seed}`),
      arm.phases.map((phase, step) => {
        const at = where[`step.${arm.name}.${seed}.${String(step).padStart(4, "0")}`];
        if (at === undefined) return make("button", {type: "button", class: "step missing", title: `step ${step}: not run`, disabled: true}, LETTER[phase]);
        const node = data.nodes[at];
        const pruned = node.checkpoint?.pruned ? " pruned" : "";
        const stop = arm.stopped.find((one) => one.seed === seed);
        const state = node.status !== "stopped" ? phase : step === stop?.step ? "stopped" : "passed";
        return make("button", {type: "button", class: `step ${state}${pruned}`, title: `step ${step}, ${phase}: ${node.status}, ${seconds(node.wall)}`,
          onclick: () => show(at)}, {stopped: "✕", passed: "–"}[state] ?? LETTER[phase]);
      }),
      evalBox(where[`evals.${arm.name}.${seed}`])));
  }

  const evalBox = (at) => (at === undefined ? make("span", {class: "soft"}, "no eval")
    : make("button", {type: "button", class: "step other", title: seconds(data.nodes[at].wall), onclick: () => show(at)}, "evals"));

  // Registry, checkpoints, archive

  function registry() {
    const text = (x) => make("td", {class: x?.length > 30 ? "words" : "text"}, x || "-");
    const line = (arm, state) => make("tr", {}, make("td", {}, arm.name), make("td", {}, arm.seeds.join(", ")), text(arm.rows), text(arm.schedule),
      make("td", {}, String(arm.phases.length)), make("td", {class: state.includes("stopped") ? "bad" : ""}, arm.status), text(arm.reason), text(state), text(arm.note));
    const stops = (arm) => arm.stopped.map((stop) => `stopped: seed ${stop.seed} at step ${stop.step}: ${stop.reasons.join(", ")}`).join("; ");
    const prepared = Object.entries(data.study.prepared).map(([name, arm]) => line({name, reason: "", ...arm}, "not run yet"));
    section("registry").append(make("h3", {}, "Registry"), table(["arm", "seeds", "rows", "schedule", "steps", "status", "reason", "stops", "note"],
      [...data.study.arms.map((arm) => line(arm, stops(arm))), ...prepared], {id: "registry-table"}));
  }

  function checkpoints() {
    const runs = {};
    for (const node of data.nodes.filter((one) => one.checkpoint)) {
      const [, arm, seed, step] = node.label.split(".");
      const run = (runs[`${arm}, seed ${seed}`] ??= {kept: 0, bytes: 0, pruned: 0, missing: 0, last: ""});
      const {pruned, missing, bytes: size} = node.checkpoint;
      if (pruned) run.pruned += 1;
      else if (missing) run.missing += 1;
      else Object.assign(run, {kept: run.kept + 1, bytes: run.bytes + size, last: `${node.entry} (step ${Number(step)})`});
    }
    const all = Object.values(runs);
    const sum = (key) => all.reduce((total, run) => total + run[key], 0);
    const line = (name, run) => make("tr", {}, make("td", {}, name), make("td", {}, String(run.kept)), make("td", {}, bytes(run.bytes)),
      make("td", {}, String(run.pruned)), make("td", {class: run.missing ? "bad" : ""}, String(run.missing)), make("td", {class: "text"}, make("code", {}, run.last)));
    section("registry").append(make("h3", {}, "Checkpoints"), about("Complete ones on disk, pruned on purpose (internalize rematerialise brings them back), and lost."),
      table(["run", "complete", "size", "pruned", "lost", "the last one"], [line("all", {kept: sum("kept"), bytes: sum("bytes"), pruned: sum("pruned"), missing: sum("missing"), last: ""}),
        ...Object.entries(runs).map(([name, run]) => line(name, run))], {id: "checkpoints-table"}));
  }

  function archive() {
    const {state, files, bytes: size, wrong = [], receipt: made} = data.manifest;
    const good = state === "whole";
    section("registry").append(make("h3", {}, "Archive"), make("p", {id: "manifest"}, "Manifest: ", make("span", {class: `chip ${good ? "good" : "bad"}`}, state),
      files ? ` ${files} files, ${bytes(size)}, of receipt ${made.slice(0, 16)}. Sizes were compared when this page was written; internalize verify compares the hashes.` : "",
      wrong.length ? make("pre", {}, `missing or of another size:\n${wrong.join("\n")}`) : ""));
  }

  cost();
  graph();
  registry();
  checkpoints();
  archive();
})();

// One episode, reply by reply: the board, what was seen and thought, what was called, and what it was worth.
"use strict";

const viewer = (() => {
  const {make, data, section, about, number} = page;
  const told = data.viewer;
  const shelves = {...told.inline};
  const waiting = {};
  const ARROWS = {ArrowLeft: -1, ArrowRight: 1};
  const MARKS = /^<.*>$/;
  const parent = section("episodes");
  let now = null; // {episodes, episode, at}

  // Side files call this; a page from disk may load scripts, but not fetch.
  page.shelve = (key, episodes) => {
    shelves[key] = episodes;
    waiting[key]?.();
  };

  function load(key) {
    const [, , , , , aside] = told.index.find(([name]) => name === key) ?? [];
    if (!aside || waiting[key]) return Promise.resolve(shelves[key] ?? []);
    return new Promise((resolve) => {
      waiting[key] = () => resolve(shelves[key]);
      document.head.append(make("script", {src: `${told.folder}/${key}.js`, onerror: () => resolve(shelves[key] ?? [])}));
    });
  }

  // Choosing

  const pick = (name, change) => {
    const select = make("select", {id: `pick-${name}`, onchange: change});
    return [select, make("label", {}, name, select)];
  };
  const [armPick, armLabel] = pick("arm", () => choose());
  const [seedPick, seedLabel] = pick("seed", () => choose());
  const [sourcePick, sourceLabel] = pick("source", () => choose());
  const [stepPick, stepLabel] = pick("step", () => choose());
  const [episodePick, episodeLabel] = pick("episode", () => start(Number(episodePick.value)));
  const note = make("p", {class: "about", "aria-live": "polite"});
  const NAME = (arm) => arm ?? "the base";

  function fill(select, values, wanted) {
    const before = wanted ?? select.value;
    select.replaceChildren(...values.map((one) => make("option", {value: String(one)}, String(one))));
    if (values.map(String).includes(String(before))) select.value = String(before);
  }

  /** Fills the boxes from left to right with what there is, and shows the first episode. */
  async function choose(wanted = {}) {
    const left = told.index.map(([key, arm, seed, step, source]) => ({key, arm: NAME(arm), seed, step, source}));
    let found = left;
    for (const [select, field] of [[armPick, "arm"], [seedPick, "seed"], [sourcePick, "source"], [stepPick, "step"]]) {
      fill(select, [...new Set(found.map((one) => one[field]))], wanted[field]);
      found = found.filter((one) => String(one[field]) === select.value);
    }
    const key = found[0]?.key;
    if (!key) return;
    const episodes = await load(key);
    fill(episodePick, episodes.map((_, at) => at), 0);
    [...episodePick.options].forEach((option, at) => {
      const {id, level, cleared, ret} = episodes[at];
      option.textContent = `${id}: level ${level}, ${cleared ? "cleared" : "not cleared"}, ${number(ret, 2, true)}`;
    });
    const aside = told.index.find(([name]) => name === key)[5];
    note.textContent = aside ? `${episodes.length} episodes.`
      : episodes.length ? `${episodes.length} of this rollout's episodes are in the page: one that cleared and one that did not, where there are both. All: internalize page --all-episodes.`
        : "None of this rollout's episodes is in the page. All: internalize page --all-episodes.";
    now = {episodes, episode: episodes[0], at: 0};
    show();
  }

  function start(at) {
    now = {...now, episode: now.episodes[at], at: 0};
    show();
  }

  // Showing

  const board = make("canvas", {width: 320, height: 320, role: "img"});
  const reply = make("div", {class: "reply", "aria-live": "polite"});
  const score = make("dl", {class: "facts"});
  const back = make("button", {type: "button", id: "back", onclick: () => move(-1)}, "‹ back");
  const next = make("button", {type: "button", id: "next", onclick: () => move(1)}, "next ›");
  const slide = make("input", {type: "range", min: 0, value: 0, "aria-label": "reply", oninput: () => move(Number(slide.value) - now.at)});
  const count = make("span", {class: "soft", id: "moment"});

  function move(by) {
    if (!now?.episode) return;
    now.at = Math.min(Math.max(0, now.at + by), now.episode.calls.length);
    show();
  }

  /** Cells of the board before reply `at`. */
  function cells(episode, at) {
    const grid = episode.start.map((row) => [...row].map((digit) => parseInt(digit, 16)));
    for (const call of episode.calls.slice(0, at)) for (const [x, y, value] of call.cells ?? []) grid[y][x] = value;
    return grid;
  }

  function draw(episode, at) {
    board.hidden = !episode.start;
    if (!episode.start) return;
    const grid = cells(episode, at), height = grid.length, width = grid[0].length, size = Math.max(8, Math.floor(704 / width));
    board.width = width * size;
    board.height = height * size;
    const pen = board.getContext("2d");
    const fresh = new Set((episode.calls[at - 1]?.cells ?? []).map(([x, y]) => `${x},${y}`));
    grid.forEach((row, y) => row.forEach((value, x) => {
      pen.fillStyle = told.palette[value];
      pen.fillRect(x * size, y * size, size, size);
      pen.strokeStyle = fresh.has(`${x},${y}`) ? "#000000" : "#f6f4ef";
      pen.lineWidth = fresh.has(`${x},${y}`) ? 4 : 2;
      pen.strokeRect(x * size + 1, y * size + 1, size - 2, size - 2);
    }));
    pen.font = `${Math.floor(size / 3.4)}px system-ui, sans-serif`;
    pen.textBaseline = "top";
    for (const [where, label] of Object.entries(told.labels)) {
      const [x, y] = where.split(",").map(Number);
      const rgb = told.palette[grid[y][x]].match(/\w\w/g).map((hex) => parseInt(hex, 16));
      pen.fillStyle = rgb[0] + rgb[1] + rgb[2] < 384 ? "#ffffff" : "#202020";
      pen.fillText(label, x * size + 8, y * size + 6);
    }
    board.setAttribute("aria-label", `board ${at} of ${episode.calls.length}: ${grid.map((row) => row.map((value) => value.toString(16)).join("")).join(" ")}`);
    board.dataset.cells = grid.map((row) => row.map((value) => value.toString(16)).join("")).join("/");
  }

  function token(id, milli, call) {
    const word = told.words[id] ?? `#${id}`;
    const fact = told.facts[word];
    const probability = Math.exp(milli / 1000);
    const verdict = fact ? (["verified", "refuted"].includes(fact.verdict) ? fact.verdict : "undecided") : "";
    const held = fact?.held ? " held" : "", needed = call.need?.includes(word) ? " needed" : "", mark = MARKS.test(word) ? " mark" : "";
    const lines = [`log-prob ${(milli / 1000).toFixed(3)}, probability ${(100 * probability).toFixed(1)} %`];
    if (fact) lines.push(`${fact.claim} — ${fact.verdict}${fact.held ? ", held out of every training row" : ""} (${fact.atom})`);
    if (needed) lines.push("needed for the next step");
    // the line below a token is the longer the surer it was
    return make("span", {class: `token ${verdict}${held}${needed}${mark}`, tabindex: 0, title: lines.join("\n"), "data-logprob": (milli / 1000).toFixed(3),
      style: verdict ? "" : `border-bottom-color: color-mix(in srgb, var(--blue) ${(100 * probability).toFixed(0)}%, transparent)`}, word);
  }

  function show() {
    const {episode, at} = now ?? {};
    if (!episode) {
      reply.replaceChildren();
      score.replaceChildren();
      board.hidden = true;
      return;
    }
    const call = episode.calls[at], last = episode.calls[at - 1];
    draw(episode, at);
    slide.max = episode.calls.length;
    slide.value = at;
    back.disabled = at === 0;
    next.disabled = at === episode.calls.length;
    count.textContent = at < episode.calls.length ? `reply ${at + 1} of ${episode.calls.length}` : "the end";
    const lines = [];
    const add = (name, ...content) => lines.push(make("dt", {}, name), make("dd", {}, ...content));
    if (call) {
      add("sees", make("code", {}, call.obs ?? (at ? last.res ?? "" : "(not kept)")));
      const tokens = call.ids.map((id, i) => token(id, call.lp[i], call));
      add("says", ...(told.words.length ? tokens : [make("p", {}, call.think ?? ""), ...tokens]));
      add("calls", call.kind === "call" ? make("b", {}, call.word) : call.kind === "say" ? `nothing: it answers “${call.say ?? ""}”` : "nothing that can be read",
        call.right ? (call.word === call.right ? make("span", {class: "good"}, " ✓ the advised call") : make("span", {class: "soft"}, ` (advised: ${call.right})`)) : "");
      if (call.tool) add("tool call", make("code", {}, `${call.tool[0]} ${JSON.stringify(call.tool[1])}`), ` → ${call.state}, ${call.changed} cells changed, ${call.left} acts left`);
      if (call.need?.length) add("needs", call.need.join(" "));
    } else if (last) {
      add("last answer", make("code", {}, last.res ?? ""), ` ${last.state ?? ""}`);
    }
    reply.replaceChildren(make("dl", {class: "facts"}, ...lines));
    const parts = Object.entries(episode.parts).map(([name, x]) => `${name} ${number(x, 2, true)}`).join(", ");
    score.replaceChildren(make("dt", {}, "return"), make("dd", {id: "score"}, make("b", {}, number(episode.ret, 3, true)), parts ? ` = ${parts}` : ""),
      make("dt", {}, "outcome"), make("dd", {}, Object.entries(episode.outcome).map(([name, x]) => `${name} ${typeof x === "number" ? Number(x.toFixed(3)) : x}`).join(", ")),
      make("dt", {}, "episode"), make("dd", {}, `${episode.id}, level ${episode.level}, level seed ${episode.seed}${episode.valid ? "" : ", not valid: does not count"}`));
  }

  /** Jumps here from the evidence of a cell. */
  async function open(arm, seed, source, step) {
    await choose({arm: NAME(arm), seed, source, step});
    parent.scrollIntoView();
  }

  const stage = make("div", {class: "viewer", tabindex: 0, onkeydown: (event) => {
    if (ARROWS[event.key] && event.target.tagName !== "SELECT" && event.target !== slide) {
      event.preventDefault();
      move(ARROWS[event.key]);
    }
  }}, make("div", {}, board, make("div", {class: "moves"}, back, slide, next, count)), make("div", {}, reply, score));
  parent.append(about("Boards are replayed from the recorded calls; ✓ verified, ✗ refuted fact; bold: needed now. Hover or focus a token for its log-prob and its "
    + "atom. Arrow keys step."), make("div", {class: "picks"}, armLabel, seedLabel, sourceLabel, stepLabel, episodeLabel), note, stage);
  const ready = choose({arm: page.arms[page.arms.length - 1], source: "rollout"});
  return {open, ready};
})();

"use strict";
// Keeps the page as the node is: a stream of what is new, and questions where it cannot be had.
(() => {
  const { get, ask, state, clock, watchAge } = look;
  const POLL_MS = 5000;
  const AGAIN_MS = 2000;
  const SILENT_MS = 12000;
  const LATE_MS = 3000;
  let stream = null;
  let timer = 0;
  let newest = null;
  let heard = 0;
  let due = 0;
  let paused = false;

  function show(found) {
    newest = found;
    heard = Date.now();
    due = LATE_MS + 1000 * (found.period_seconds - 1);
    get("all").classList.remove("old");
    if (!paused) view.draw(found);
  }

  function lost(why) {
    due = 0;
    get("all").classList.add("old");
    state("bad", newest === null ? why : `no answer since ${clock(heard / 1000)}`);
  }

  function later(what, milliseconds) {
    clearTimeout(timer);
    timer = setTimeout(what, milliseconds);
  }

  // All of it, with the minutes before now; then what is new.
  async function begin() {
    stop();
    try {
      const found = await ask("api/node");
      past.begin(found);
      show(found);
    } catch (error) {
      lost(error instanceof TypeError ? "the agent does not answer" : error.message);
      later(begin, AGAIN_MS);
      return;
    }
    listen();
  }

  function listen() {
    if (document.hidden) return;
    stream = new EventSource("api/stream");
    stream.addEventListener("look", (event) => {
      state("good", paused ? "live, paused" : "live");
      const found = JSON.parse(event.data);
      past.add(found);
      show(found);
      later(begin, SILENT_MS + 3000 * found.period_seconds);
    });
    stream.onerror = () => {
      const refused = stream.readyState === EventSource.CLOSED;
      stop();
      if (refused && newest !== null && Date.now() - heard < SILENT_MS) {
        poll();
      } else {
        lost("the agent does not answer");
        later(begin, AGAIN_MS);
      }
    };
  }

  // As many listen as may.
  async function poll() {
    try {
      const found = await ask("api/node");
      past.begin(found);
      show(found);
      due += POLL_MS;
      state("warn", "updates every 5 s: too many readers");
      later(Math.random() < 0.2 ? begin : poll, POLL_MS);
    } catch {
      later(begin, AGAIN_MS);
    }
  }

  function stop() {
    clearTimeout(timer);
    if (stream !== null) stream.close();
    stream = null;
  }

  function pause() {
    paused = !paused;
    get("pause").setAttribute("aria-pressed", String(paused));
    get("pause").textContent = paused ? "Resume" : "Pause";
    if (stream !== null) state("good", paused ? "live, paused" : "live");
    if (!paused && newest !== null) view.draw(newest);
  }

  get("pause").addEventListener("click", pause);
  get("search").addEventListener("input", view.again);
  get("order").addEventListener("change", view.again);
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const typing = event.target instanceof HTMLInputElement || event.target instanceof HTMLSelectElement;
    if (event.key === "/" && !typing) { event.preventDefault(); get("search").focus(); }
    if (event.key === "p" && !typing) pause();
    if (event.key === "Escape" && event.target === get("search")) { get("search").value = ""; view.again(); }
  });
  document.addEventListener("visibilitychange", () => (document.hidden ? stop() : begin()));
  window.addEventListener("pagehide", stop);
  watchAge(() => heard, () => (paused || document.hidden ? 0 : due));
  begin();
})();

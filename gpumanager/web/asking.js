"use strict";
// Asks the extender again and again, for the page of nodes that one is on.
(() => {
  const { get, ask, state, clock, watchAge } = look;
  const EVERY_MS = 3000;
  const TYPED_MS = 250;
  const SILENT_MS = 3000;
  const wanted = { search: "", state: "all", sort: "name", page: 1 };
  let timer = 0;
  let asking = 0;
  let heard = 0;
  let paused = false;
  let live = false;

  function later(milliseconds) {
    clearTimeout(timer);
    timer = setTimeout(tell, milliseconds);
  }

  // What was asked last counts, whichever answer comes first.
  async function tell() {
    clearTimeout(timer);
    asking += 1;
    const mine = asking;
    try {
      const found = await ask(`api/cluster?${new URLSearchParams(wanted)}`);
      if (mine !== asking) return;
      heard = Date.now();
      wanted.page = found.page;
      get("all").classList.remove("old");
      view.draw(found);
      live = true;
      state("good", paused ? "paused" : "live");
    } catch (error) {
      if (mine !== asking) return;
      live = false;
      get("all").classList.add("old");
      const why = error instanceof TypeError ? "the extender does not answer" : error.message;
      state("bad", heard ? `no answer since ${clock(heard / 1000)}` : why);
    }
    if (!paused && !document.hidden) later(EVERY_MS);
  }

  function seek(change, wait = 0) {
    Object.assign(wanted, change);
    later(wait);
  }

  function pause() {
    paused = !paused;
    get("pause").setAttribute("aria-pressed", String(paused));
    get("pause").textContent = paused ? "Resume" : "Pause";
    if (paused) { clearTimeout(timer); state("good", "paused"); } else tell();
  }

  get("pause").addEventListener("click", pause);
  get("search").addEventListener("input", (event) => seek({ search: event.target.value.trim(), page: 1 }, TYPED_MS));
  get("nodes-state").addEventListener("change", (event) => seek({ state: event.target.value, page: 1 }));
  get("sort").addEventListener("change", (event) => seek({ sort: event.target.value, page: 1 }));
  get("before").addEventListener("click", () => seek({ page: wanted.page - 1 }));
  get("after").addEventListener("click", () => seek({ page: wanted.page + 1 }));
  get("page").addEventListener("change", (event) => {
    const page = Math.round(Number(event.target.value));
    event.target.value = "";
    if (page >= 1) seek({ page: Math.min(page, Number(event.target.max)) });
  });
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const typing = event.target instanceof HTMLInputElement || event.target instanceof HTMLSelectElement;
    if (event.key === "/" && !typing) { event.preventDefault(); get("search").focus(); }
    if (event.key === "p" && !typing) pause();
    if (event.key === "Escape" && event.target === get("search")) { get("search").value = ""; seek({ search: "", page: 1 }); }
  });
  watchAge(() => heard, () => (live && !paused ? EVERY_MS + SILENT_MS : 0));
  document.addEventListener("visibilitychange", () => (document.hidden ? clearTimeout(timer) : paused || tell()));
  tell();
})();

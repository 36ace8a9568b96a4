// Runs before the first paint, so that a chosen theme does not flash.
try {
  const chosen = localStorage.getItem("rmq-theme");
  if (chosen) document.documentElement.dataset.theme = chosen;
} catch { /* no storage: the system's theme */ }

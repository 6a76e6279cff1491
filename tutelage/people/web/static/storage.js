// What must survive a reload: one entry per key, so that two tabs never overwrite each other's.

const memory = new Map();

/** Whether entries really survive; some browsers forbid storage, and then only this page remembers. */
export const durable = (() => {
  try {
    localStorage.setItem("tutelage.test", "1");
    localStorage.removeItem("tutelage.test");
    return true;
  } catch {
    return false;
  }
})();

/** Whether the entry was written where it survives. */
export function put(key, value) {
  const text = JSON.stringify(value);
  try {
    localStorage.setItem(key, text);
    memory.delete(key);
    return true;
  } catch {
    memory.set(key, text);
    return false;
  }
}

export function take(key) {
  try {
    const text = memory.get(key) ?? localStorage.getItem(key);
    return text === null || text === undefined ? null : JSON.parse(text);
  } catch {
    return null;
  }
}

export function drop(key) {
  memory.delete(key);
  if (durable) localStorage.removeItem(key);
}

/** The keys that begin so. */
export function keys(prefix) {
  const found = durable ? Object.keys(localStorage) : [];
  return [...new Set([...found, ...memory.keys()])].filter((key) => key.startsWith(prefix));
}

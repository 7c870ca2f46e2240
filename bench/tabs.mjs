/** Other tabs of this origin, which empty a queue when they are told to. */

/** A tab that is not there by then was not let in: pop-ups are blocked. */
const LIMIT = 30_000;

/**
 * Opens tabs that share nothing with this one but the origin.
 * @returns {Promise<{drain: (count: number, queue: string) => Promise<number[]>, close: () => void}>} `drain`: so many of them empty the queue
 *   together; gives how many messages each has handled
 */
export async function openTabs(count, database) {
  const id = crypto.randomUUID();
  const channel = new BroadcastChannel(id);
  const answers = (expected) => new Promise((resolve, reject) => {
    const handled = [];
    channel.onmessage = ({ data }) => {
      if (data.error !== undefined) reject(new Error(`a tab failed: ${data.error}`));
      if (data.handled === undefined) return;
      handled.push(data.handled);
      if (handled.length === expected) resolve(handled);
    };
  });
  const close = () => {
    channel.postMessage({ close: true });
    channel.close();
  };
  const ready = answers(count);
  for (let number = 0; number < count; number += 1) window.open(`./tab.html?${new URLSearchParams({ id, number, database })}`, "_blank", "noopener");
  let timer;
  const late = new Promise((_, reject) => { timer = setTimeout(() => reject(new Error("the tabs did not open: this line needs pop-ups to be allowed")), LIMIT); });
  try {
    await Promise.race([ready, late]);
  } catch (error) {
    close();
    throw error;
  } finally {
    clearTimeout(timer);
  }
  const drain = (taking, queue) => {
    const done = answers(taking);
    channel.postMessage({ taking, queue });
    return done;
  };
  return { drain, close };
}

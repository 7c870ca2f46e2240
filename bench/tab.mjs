/** One of several tabs: bench/tabs.mjs opens it and tells it what to do. */
import { openBroker } from "pocket-broker";

const TOP = 10;
const { id, number, database } = Object.fromEntries(new URLSearchParams(location.search));
const channel = new BroadcastChannel(id);
const tell = (work) => work.then((handled) => channel.postMessage({ handled }), (error) => channel.postMessage({ error: String(error) }));

const opening = openBroker(database);
channel.onmessage = ({ data: { close, taking, queue } }) => {
  if (close) globalThis.close();
  else if (Number(number) < taking) tell(opening.then((broker) => broker.drain(queue, () => {}, { top: TOP })).then(({ handled }) => handled));
};
tell(opening.then(() => 0));

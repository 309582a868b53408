// One mount for each place on the page: Streamlit calls the module again at every rerun.

/** The default export of a widget's module: `make(parent)` gives an object with receive(data), close(). */
export function mounted(make) {
  const mounts = new WeakMap();
  return ({ data, parentElement, setStateValue, setTriggerValue }) => {
    let mount = mounts.get(parentElement);
    if (!mount) {
      mount = make(parentElement);
      mounts.set(parentElement, mount);
    }
    mount.tell = { state: setStateValue, trigger: setTriggerValue };
    mount.receive(data);
    return () => { mount.close(); mounts.delete(parentElement); };
  };
}

/** {root, host, el}: static markup put into a place, and its parts by their data-el. */
export function planted(parent, markup) {
  const box = document.createElement("div");
  box.innerHTML = markup;
  const root = box.firstElementChild;
  parent.appendChild(root);
  const el = Object.fromEntries([...root.querySelectorAll("[data-el]")].map((e) => [e.dataset.el, e]));
  return { root, host: parent.host ?? parent, el };
}

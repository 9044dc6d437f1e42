import { useData, withBase } from "vitepress";
import DefaultTheme from "vitepress/theme";
import { defineComponent, h, onBeforeUnmount, onMounted, ref } from "vue";
import "./style.css";

/** A component that a function fills in the browser, and takes down again. */
function island(label: string, load: (place: HTMLElement, name: string) => Promise<() => void>) {
  return defineComponent({
    props: { name: { type: String, default: "" } },
    setup({ name }) {
      const place = ref<HTMLElement>();
      let end: (() => void) | undefined;
      let isGone = false;
      onMounted(async () => {
        if (place.value === undefined) return;
        end = await load(place.value, name);
        if (isGone) end();
      });
      onBeforeUnmount(() => {
        isGone = true;
        end?.();
      });
      return () =>
        h("div", { ref: place, class: "island" }, [h("p", `${label} needs JavaScript.`)]);
    },
  });
}

/** Leads to the repository if the build knows it, else to the page about the source. */
const SourceLink = defineComponent({
  setup() {
    const { theme } = useData();
    const { repository } = theme.value;
    return () =>
      repository === undefined
        ? h("a", { href: withBase("/ARCHITECTURE.html") }, "How it works inside")
        : h("a", { href: repository }, "Source");
  },
});

export default {
  extends: DefaultTheme,
  enhanceApp({ app }: { app: { component(name: string, component: object): void } }) {
    app.component("SourceLink", SourceLink);
    app.component(
      "PlayGround",
      island("The playground", async (place) =>
        (await import("../../view/playground.ts")).mount(place),
      ),
    );
    app.component(
      "ConcurrencyGround",
      island("The playground", async (place) =>
        (await import("../../view/concurrency.ts")).mount(place),
      ),
    );
    app.component(
      "RegionsGround",
      island("The playground", async (place) =>
        (await import("../../view/regions.ts")).mount(place),
      ),
    );
    app.component(
      "LiveFigure",
      island("This figure", async (place, name) =>
        (await import("../../view/figure.ts")).mount(place, name),
      ),
    );
  },
};

// What belongs to a clause of the spec (its lines, conditions and nodes) is lit together.
class Links {
  constructor() {
    this.all = [...document.querySelectorAll("[data-clauses]")];
    for (const element of this.all) {
      element.addEventListener("pointerenter", () => this.light(element));
      element.addEventListener("pointerleave", () => this.light(null));
    }
  }

  light(element) {
    const wanted = element ? element.dataset.clauses.split(" ") : [];
    for (const each of this.all) {
      const lit = each.dataset.clauses.split(" ").some((clause) => wanted.includes(clause));
      each.classList.toggle("lit", lit);
    }
  }
}

const data = JSON.parse(document.getElementById("data").textContent);
const host = document.getElementById("picture");
const report = {links: new Links(), mask: null, picture: null};
if (data !== null && host !== null) {
  report.mask = new Mask(data);
  report.picture = new Picture(report.mask, host);
}

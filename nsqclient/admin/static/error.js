// The page of an error refreshes nothing.
document.getElementById("live").hidden = true;
document.body.classList.remove("waiting");

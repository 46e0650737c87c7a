// The page of an error refreshes nothing.
document.getElementById("live").hidden = true;

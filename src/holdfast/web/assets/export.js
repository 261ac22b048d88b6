import{D as e,Dr as t,E as n,Fn as r,I as i,O as a,Pn as o,hr as s,q as c}from"./start.js";async function l(e){try{await i(f(await s.session(e))),r(t().copied)}catch(e){o(e)}}async function u(e,t){try{let n=await(t===`json`?s.wholeSession(e):s.session(e)),r=(n.title||`session`).replace(/[^\p{L}\p{N} _-]+/gu,``).slice(0,60).trim()||`session`;t===`json`?h(`${r}.json`,JSON.stringify(n,null,2),`application/json`):h(`${r}.md`,f(n),`text/markdown`)}catch(e){o(e)}}async function d(e){try{let t=[];for(let n of e)t.push(f(await s.session(n)));h(`chats.md`,t.join(`
---

`),`text/markdown`)}catch(e){o(e)}}function f(n){return`${[`# ${n.title||t().untitled}`,...n.system?[m(n.system)]:[],...e(n.messages).map(p)].join(`

`)}\n`}function p({message:e,earlier:r}){let i=e.role===`user`?t().you:a([...r,e]).join(`, `)||e.role,o=c(e.outcome,null),s=[e.edited?t().editedByPerson:``,o?.label??``].filter(Boolean);return[`## ${i}`,n([...r,e]),...s.map(e=>`*${e}.*`)].join(`

`)}function m(e){return e.replace(/^/gm,`> `)}function h(e,t,n){let r=document.createElement(`a`);r.href=URL.createObjectURL(new Blob([t],{type:n})),r.download=e,r.click(),setTimeout(()=>URL.revokeObjectURL(r.href),1e3)}export{f as asMarkdown,l as copyMarkdown,d as exportAll,u as exportAs};